#include "harness/sim/collectives.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/full.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <functional>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "harness/sim/memory.hpp"
#include "harness/sim/streams.hpp"

namespace fsdp_cts::sim {
namespace {

using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

c10::Stream stream_of_device(c10::Device device) {
  return c10::impl::getDeviceGuardImpl(device_type)->getNewStream(device);
}

class StreamWork final : public c10d::Work {
 public:
  // `done`: recorded behind the collective.
  StreamWork(int rank, c10d::OpType type, std::shared_ptr<c10::Event> done, c10::Device device,
             Tensors results)
      : c10d::Work(rank, type), done_(std::move(done)), device_(device), results_(std::move(results)) {
    finish();
  }
  bool isCompleted() override { return done_->query(); }
  bool wait(std::chrono::milliseconds) override {
    done_->block(current_stream(device_.index()));
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                           std::vector<c10::Device>{device_});
    future->markCompleted(c10::IValue(results_));
    return future;
  }

 private:
  std::shared_ptr<c10::Event> done_;
  c10::Device device_;
  Tensors results_;
};

// What a collective is given, as one list; and the same on the CPU. A collective takes a tensor, a list, or a
// list of lists.
Tensors flat(const at::Tensor& tensor) {
  return {tensor};
}
Tensors flat(const Tensors& tensors) {
  return tensors;
}
Tensors flat(const Lists& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

at::Tensor for_cpu(const at::Tensor& tensor) {
  return on_cpu(tensor);
}
template <typename Item>
std::vector<Item> for_cpu(const std::vector<Item>& items) {
  std::vector<Item> made;
  for (const Item& item : items) made.push_back(for_cpu(item));
  return made;
}

class Backend final : public c10d::Backend {
 public:
  explicit Backend(c10::intrusive_ptr<c10d::Backend> transport)
      : c10d::Backend(transport->getRank(), transport->getSize()), transport_(std::move(transport)) {}

  const std::string getBackendName() const override { return "sim"; }
  void setTimeout(std::chrono::milliseconds timeout) override { transport_->setTimeout(timeout); }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return in_place("c10d::broadcast_", c10d::OpType::BROADCAST, tensors, options, &c10d::Backend::broadcast);
  }
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return in_place("c10d::allreduce_", c10d::OpType::ALLREDUCE, tensors, options, &c10d::Backend::allreduce);
  }
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return in_place("c10d::allreduce_coalesced_", c10d::OpType::ALLREDUCE_COALESCED, tensors, options,
                    &c10d::Backend::allreduce_coalesced);
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return in_place("c10d::reduce_", c10d::OpType::REDUCE, tensors, options, &c10d::Backend::reduce);
  }
  WorkPointer allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return from_to("c10d::allgather_", c10d::OpType::ALLGATHER, outputs, inputs, options,
                   &c10d::Backend::allgather);
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override {
    return from_to("c10d::_allgather_base_", c10d::OpType::_ALLGATHER_BASE, output, input, options,
                   &c10d::Backend::_allgather_base);
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override {
    return from_to("c10d::allgather_into_tensor_coalesced_", c10d::OpType::ALLGATHER_COALESCED, outputs,
                   inputs, options, &c10d::Backend::allgather_into_tensor_coalesced);
  }
  WorkPointer gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return from_to("c10d::gather_", c10d::OpType::GATHER, outputs, inputs, options, &c10d::Backend::gather);
  }
  WorkPointer scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override {
    return from_to("c10d::scatter_", c10d::OpType::SCATTER, outputs, inputs, options,
                   &c10d::Backend::scatter);
  }
  WorkPointer reduce_scatter(Tensors& outputs, Lists& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    return from_to("c10d::reduce_scatter_", c10d::OpType::REDUCE_SCATTER, outputs, inputs, options,
                   &c10d::Backend::reduce_scatter);
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    return from_to("c10d::_reduce_scatter_base_", c10d::OpType::_REDUCE_SCATTER_BASE, output, input, options,
                   &c10d::Backend::_reduce_scatter_base);
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override {
    return from_to("c10d::reduce_scatter_tensor_coalesced_", c10d::OpType::COALESCED, outputs, inputs,
                   options, &c10d::Backend::reduce_scatter_tensor_coalesced);
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    return issue("c10d::barrier", c10d::OpType::BARRIER, options, {}, {},
                 [&] { return transport_->barrier(options); });
  }

 private:
  template <typename Options>
  WorkPointer in_place(const char* name, c10d::OpType type, Tensors& tensors, const Options& options,
                       WorkPointer (c10d::Backend::*carry)(Tensors&, const Options&)) {
    return issue(name, type, options, tensors, tensors, [&] {
      auto on_host = for_cpu(tensors);
      return (transport_.get()->*carry)(on_host, options);
    });
  }

  template <typename Outputs, typename Inputs, typename Options>
  WorkPointer from_to(const char* name, c10d::OpType type, Outputs& outputs, Inputs& inputs,
                      const Options& options,
                      WorkPointer (c10d::Backend::*carry)(Outputs&, Inputs&, const Options&)) {
    return issue(name, type, options, flat(inputs), flat(outputs), [&] {
      auto outputs_on_host = for_cpu(outputs);
      auto inputs_on_host = for_cpu(inputs);
      return (transport_.get()->*carry)(outputs_on_host, inputs_on_host, options);
    });
  }

  template <typename Options>
  WorkPointer issue(const char* name, c10d::OpType type, const Options& options, const Tensors& inputs,
                    const Tensors& outputs, const std::function<WorkPointer()>& carry_out) {
    c10::Device device(device_type, current_device());
    for (const Tensors* tensors : {&inputs, &outputs}) {
      if (!tensors->empty()) device = tensors->front().device();
    }
    TORCH_CHECK(device.type() == device_type, name, " of backend sim takes tensors of the device, not of ",
                device);
    const c10::DeviceGuard device_guard(device);
    const c10::Stream current = current_stream(device.index());
    const c10::Stream stream = options.asyncOp ? own_stream(device) : current;
    if (stream != current) {
      c10::Event ready(device_type);
      ready.record(current);
      ready.block(stream);
    }
    const c10::StreamGuard stream_guard(stream);
    const Collective collective{pattern_of(type), getSize(),
                                [&](std::int64_t number) { return largest(number); }};
    launch_collective(name, inputs, outputs, collective, [&] {
      if (const auto work = carry_out()) work->wait();
    });
    auto done = std::make_shared<c10::Event>(device_type);
    done->record(stream);
    return c10::make_intrusive<StreamWork>(getRank(), type, std::move(done), device, outputs);
  }

  static Pattern pattern_of(c10d::OpType type) {
    switch (type) {
      case c10d::OpType::ALLREDUCE:
      case c10d::OpType::ALLREDUCE_COALESCED:
      case c10d::OpType::BARRIER:
        return Pattern::all_reduce;
      case c10d::OpType::BROADCAST:
      case c10d::OpType::REDUCE:
        return Pattern::broadcast;
      default:
        return Pattern::all_gather;
    }
  }

  std::int64_t largest(std::int64_t number) {
    Tensors numbers{at::full({1}, number, at::kLong)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    transport_->allreduce(numbers, options)->wait();
    return numbers[0].item<std::int64_t>();
  }

  c10::Stream own_stream(c10::Device device) {
    const std::lock_guard lock(mutex_);
    const auto at = streams_.find(device.index());
    if (at != streams_.end()) return at->second;
    const c10::Stream made = stream_of_device(device);
    name_stream(made, "a process group's stream of " + device.str());
    return streams_.emplace(device.index(), made).first->second;
  }

  c10::intrusive_ptr<c10d::Backend> transport_;
  std::mutex mutex_;
  std::map<c10::DeviceIndex, c10::Stream> streams_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Backend> transport) {
  TORCH_CHECK(transport != nullptr, "backend sim needs a backend for the CPU");
  return c10::make_intrusive<Backend>(std::move(transport));
}

}  // namespace fsdp_cts::sim
