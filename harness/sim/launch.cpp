#include <c10/core/DeviceGuard.h>

#include "harness/sim/memory.hpp"
#include "harness/sim/scopes.hpp"
#include "harness/sim/streams.hpp"

namespace fsdp_cts::sim {

void launch(const std::string& operation, const std::vector<at::Tensor>& reads,
            const std::vector<at::Tensor>& writes, const std::function<void()>& work) {
  c10::DeviceIndex device = current_device();
  for (const auto* tensors : {&reads, &writes}) {
    for (const at::Tensor& tensor : *tensors) {
      TORCH_CHECK(tensor.device().type() == device_type, operation,
                  " is an operator of device sim and takes no tensors of ", tensor.device());
      device = tensor.device().index();
    }
  }
  const c10::DeviceGuard guard(c10::Device(device_type, device));
  const auto step = Checker::instance().launch(current_timeline(), operation, scope());
  for (const at::Tensor& tensor : reads) note(step, tensor, false);
  for (const at::Tensor& tensor : writes) note(step, tensor, true);
  const InsideTheDevice inside;
  work();
}

}  // namespace fsdp_cts::sim
