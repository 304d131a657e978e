#include "impl/testee/simulation.hpp"

#include <ATen/ops/full.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "fsdp/streams.hpp"
#include "harness/sim/sim.hpp"

namespace fsdp_cts::testee {
namespace {

// A program that waits for nothing has thousands, and the first tell it.
constexpr std::size_t findings_of_a_step = 32;
constexpr std::size_t waits_of_a_step = 32;

c10::impl::VirtualGuardImpl guard() {
  return c10::impl::VirtualGuardImpl(sim::device_type);
}

class StreamWork : public fsdp::Work {
 public:
  explicit StreamWork(c10::Device device) : device_(device) { done_.record(guard().getStream(device_)); }
  void wait() override { done_.block(guard().getStream(device_)); }

 private:
  c10::Device device_;
  c10::Event done_{sim::device_type};
};

class SimulatedGroup : public fsdp::Communicator {
 public:
  SimulatedGroup(std::shared_ptr<fsdp::Communicator> transport, c10::Device device)
      : transport_(std::move(transport)), device_(device) {}

  std::int64_t rank() const override { return transport_->rank(); }
  const std::vector<std::int64_t>& ranks() const override { return transport_->ranks(); }
  at::Device device() const override { return device_; }

  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite& site) override {
    return put("all_gather", sim::Pattern::all_gather, in, out,
               [&] { return transport_->all_gather(sim::on_cpu(out), sim::on_cpu(in), site); });
  }
  fsdp::WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, fsdp::Reduction reduction,
                               const fsdp::CallSite& site) override {
    return put("reduce_scatter", sim::Pattern::all_gather, in, out, [&] {
      return transport_->reduce_scatter(sim::on_cpu(out), sim::on_cpu(in), reduction, site);
    });
  }
  fsdp::WorkPtr all_reduce(at::Tensor tensor, fsdp::Reduction reduction,
                           const fsdp::CallSite& site) override {
    return put("all_reduce", sim::Pattern::all_reduce, tensor, tensor,
               [&] { return transport_->all_reduce(sim::on_cpu(tensor), reduction, site); });
  }
  fsdp::WorkPtr broadcast(at::Tensor tensor, std::int64_t root, const fsdp::CallSite& site) override {
    return put("broadcast", sim::Pattern::broadcast, tensor, tensor,
               [&] { return transport_->broadcast(sim::on_cpu(tensor), root, site); });
  }
  std::shared_ptr<fsdp::Communicator> subgroup(const std::vector<std::int64_t>& ranks) override {
    auto& group = subgroups_[ranks];
    if (!group) group = std::make_shared<SimulatedGroup>(transport_->subgroup(ranks), device_);
    return group;
  }

 private:
  fsdp::WorkPtr put(const char* name, sim::Pattern pattern, const at::Tensor& in, const at::Tensor& out,
                    const std::function<fsdp::WorkPtr()>& carry) const {
    const sim::Collective collective{pattern, static_cast<int>(size()),
                                     [&](std::int64_t number) { return largest(number); }};
    sim::launch_collective(name, {in}, {out}, collective, [&] { carry()->wait(); });
    return std::make_unique<StreamWork>(device_);
  }

  std::int64_t largest(std::int64_t number) const {
    const at::Tensor numbers = at::full({1}, number, at::kLong);
    transport_->all_reduce(numbers, {fsdp::ReduceOp::max}, {})->wait();
    return numbers.item<std::int64_t>();
  }

  std::shared_ptr<fsdp::Communicator> transport_;
  c10::Device device_;
  std::map<std::vector<std::int64_t>, std::shared_ptr<fsdp::Communicator>> subgroups_;
};

Json as_json(const sim::FindingSide& side) {
  return {{"operation", side.operation},
          {"scope", side.scope},
          {"timeline", side.timeline},
          {"access", side.write ? "write" : "read"}};
}

Json as_json(const sim::Finding& finding) {
  return {{"code", sim::finding_code(finding.kind)},
          {"text", sim::describe(finding)},
          {"earlier", as_json(finding.earlier)},
          {"later", as_json(finding.later)},
          {"buffer", finding.buffer},
          {"bytes", finding.bytes},
          {"missing", finding.missing},
          {"times", finding.times}};
}

class SimDevice : public Simulation {
 public:
  explicit SimDevice(int local_rank) {
    sim::register_device();
    const int index = local_rank % guard().deviceCount();
    device_ = c10::Device(sim::device_type, static_cast<c10::DeviceIndex>(index));
    guard().setDevice(device_);
    fsdp::set_stream_namer([](c10::Stream stream, const char* name) { sim::name_stream(stream, name); });
  }

  c10::Device device() const override { return device_; }
  std::shared_ptr<fsdp::Communicator> over(std::shared_ptr<fsdp::Communicator> transport) const override {
    return std::make_shared<SimulatedGroup>(std::move(transport), device_);
  }
  void begin_case(const std::string& id) override {
    guard().synchronizeDevice(device_.index());
    choose_machine();
    sim::drain_findings();
    launches_before_ = sim::launches();
    bytes_before_ = allocated();
    use();
    sim::begin_trace_of(id);
    begin_stretch();
  }
  void end_case() override { sim::end_trace(); }
  std::shared_ptr<void> unobserved() const override { return std::make_shared<sim::Unobserved>(); }
  std::vector<Json> findings() override {
    sim::write_trace();  // of the case so far: it may not come to its end
    std::vector<Json> found;
    for (const sim::Finding& finding : sim::drain_findings()) {
      if (found.size() < findings_of_a_step) found.push_back(as_json(finding));
    }
    return found;
  }
  Json use() override {
    const sim::MemoryHeld held = sim::memory_held(device_.index());
    Json use{{"begin_bytes", std::exchange(held_before_, held.now)},
             {"peak_bytes", held.peak},
             {"host_waits", Json::array()}};
    for (const sim::HostWait& wait : sim::drain_host_waits()) {
      if (use["host_waits"].size() < waits_of_a_step)
        use["host_waits"].push_back(
            {{"operation", wait.operation}, {"scope", wait.scope}, {"times", wait.times}});
    }
    return use;
  }
  std::uint64_t launches() const override { return sim::launches() - launches_before_; }
  std::int64_t kept_bytes() const override {
    // Autograd's threads let go of a graph a little later than backward returns.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (allocated() > bytes_before_ && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return allocated() - bytes_before_;
  }
  void name_buffer(const at::Tensor& tensor, const std::string& name) const override {
    sim::name_buffer(tensor, name);
  }
  void delay(std::chrono::nanoseconds duration) const override {
    sim::delay_stream(guard().getStream(device_), duration);
  }
  void begin_stretch() const override {
    if (!sim::machine().empty()) sim::mark();
  }
  std::optional<Stretch> end_stretch() const override {
    if (sim::machine().empty()) return std::nullopt;
    const sim::StepNumbers numbers = sim::since_mark();
    return Stretch{numbers.duration, numbers.compute, numbers.communication, numbers.exposed_communication,
                   numbers.peak_memory.at(static_cast<std::size_t>(device_.index()))};
  }

 private:
  // A case may choose one by a switch.
  static void choose_machine() {
    const char* wanted = std::getenv("FSDP_SIM_MACHINE");
    const std::string name = wanted == nullptr ? "" : wanted;
    if (name != sim::machine()) sim::set_machine(name);
  }

  std::int64_t allocated() const {
    return c10::getDeviceAllocator(sim::device_type)
        ->getDeviceStats(device_.index())
        .allocated_bytes[0]
        .current;
  }

  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
  std::uint64_t launches_before_ = 0;
  std::int64_t bytes_before_ = 0;
  std::size_t held_before_ = 0;
};

}  // namespace

std::shared_ptr<Simulation> start_simulation(int local_rank) {
  return std::make_shared<SimDevice>(local_rank);
}

}  // namespace fsdp_cts::testee
