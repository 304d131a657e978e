#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "harness/sim/memory.hpp"
#include "harness/sim/scopes.hpp"
#include "harness/sim/streams.hpp"
#include "harness/sim/virtual_time.hpp"

namespace fsdp_cts::sim {

namespace {

double bytes_of_all(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  for (const at::Tensor& tensor : tensors) sum += bytes_of(tensor);
  return sum;
}

// Null for an operator.
void launch(const std::string& operation, const std::vector<at::Tensor>& reads,
            const std::vector<at::Tensor>& writes, const Collective* collective,
            const std::function<void()>& work) {
  c10::DeviceIndex device = current_device();
  for (const auto* tensors : {&reads, &writes}) {
    for (const at::Tensor& tensor : *tensors) {
      TORCH_CHECK(tensor.device().type() == device_type, operation,
                  " is an operator of device sim and takes no tensors of ", tensor.device());
      device = tensor.device().index();
    }
  }
  const c10::DeviceGuard guard(c10::Device(device_type, device));
  const Timeline stream = current_timeline();
  const auto step = Checker::instance().launch(stream, operation, scope());
  for (const at::Tensor& tensor : reads) note(step, tensor, false);
  for (const at::Tensor& tensor : writes) note(step, tensor, true);
  const InsideTheDevice inside;
  const Machine* const machine = chosen_machine();
  if (machine == nullptr) return work();
  const double read = bytes_of_all(reads);
  const double written = bytes_of_all(writes);
  if (collective == nullptr) {
    work();
    return spend(*machine, step, Kind::compute, duration_of(*machine, {.bytes = read + written}));
  }
  // Every rank asks, whether it is observed or not, so that none is left alone.
  const Nanoseconds arrival = Checker::instance().ready(stream, machine->host_launch);
  const Nanoseconds latest = collective->ranks > 1 ? collective->largest(arrival) : arrival;
  work();
  spend(*machine, step, Kind::collective,
        duration_of_collective(*machine, collective->pattern, collective->ranks, std::max(read, written)),
        latest);
}

}  // namespace

void launch(const std::string& operation, const std::vector<at::Tensor>& reads,
            const std::vector<at::Tensor>& writes, const std::function<void()>& work) {
  launch(operation, reads, writes, nullptr, work);
}

void launch_collective(const std::string& operation, const std::vector<at::Tensor>& reads,
                       const std::vector<at::Tensor>& writes, const Collective& collective,
                       const std::function<void()>& work) {
  launch(operation, reads, writes, &collective, work);
}

}  // namespace fsdp_cts::sim
