#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/storage.hpp"
#include "base/streams.hpp"
#include "comm/staged/stream_gate.hpp"
#include "comm/stream_work.hpp"
#include "fsdp/comm/staged.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

using Job = std::function<void()>;

/// Does what a stream is to wait for, job after job.
class Driver {
 public:
  explicit Driver(at::Device device) : device_(device), gate_(device), thread_([this] { work(); }) {}
  ~Driver() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  /// Throws what an earlier job has thrown.
  void check() const {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

  /// `job` comes after what is on the current stream by now; what is put there later comes after `job`.
  void put(Job job) {
    check();
    const uint32_t number = ++issued_;
    {
      const std::lock_guard lock(mutex_);
      pending_.push_back({StreamEvent::record(device_), std::move(job), number});
    }
    changed_.notify_one();
    gate_.block_current(number);
  }

 private:
  struct Pending {
    StreamEvent reached;
    Job job;
    uint32_t number;
  };

  void work() {
    // Events are ended here, and not on the first device, where that would begin to use it.
    c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
    while (true) {
      Pending next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ending_ || !pending_.empty(); });
        if (pending_.empty()) return;
        next = std::move(pending_.front());
        pending_.pop_front();
      }
      try {
        check();  // the carrier's ranks are apart from each other now
        next.reached.synchronize();
        next.job();
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
      gate_.open(next.number);
    }
  }

  at::Device device_;
  StreamGate gate_;
  uint32_t issued_ = 0;
  mutable std::mutex mutex_;  // of what is below
  std::condition_variable changed_;
  std::deque<Pending> pending_;
  std::exception_ptr failure_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the rest
};

class StagedCommunicator : public Communicator, public std::enable_shared_from_this<StagedCommunicator> {
 public:
  StagedCommunicator(std::shared_ptr<Communicator> carrier, at::Device device)
      : carrier_(std::move(carrier)), device_(device) {
    const c10::DeviceGuard here(device_);
    if (size() > 1) driver_ = std::make_unique<Driver>(device_);
  }

  int64_t rank() const override { return carrier_->rank(); }
  const std::vector<int64_t>& ranks() const override { return carrier_->ranks(); }
  at::Device device() const override { return device_; }

  WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite& site) override {
    check({in, out});
    const auto sent = on_host(in), received = pinned_like(out);
    carry([carrier = carrier_, sent, received, site] { carrier->all_gather(received, sent, site)->wait(); });
    return handed_back(out, received, in);
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduction reduction, const CallSite& site) override {
    check({in, out});
    const auto sent = on_host(in), received = pinned_like(out);
    carry([carrier = carrier_, sent, received, reduction, site] {
      carrier->reduce_scatter(received, sent, multiplied(sent, reduction), site)->wait();
    });
    return handed_back(out, received, in);
  }
  WorkPtr all_reduce(at::Tensor tensor, Reduction reduction, const CallSite& site) override {
    check({tensor});
    const auto sent = on_host(tensor);
    carry([carrier = carrier_, sent, reduction, site] {
      carrier->all_reduce(sent, multiplied(sent, reduction), site)->wait();
    });
    return handed_back(tensor, sent, tensor);
  }
  WorkPtr broadcast(at::Tensor tensor, int64_t root, const CallSite& site) override {
    check({tensor});
    const auto sent = on_host(tensor);
    carry([carrier = carrier_, sent, root, site] { carrier->broadcast(sent, root, site)->wait(); });
    return handed_back(tensor, sent, tensor);
  }

  std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>& ranks) override {
    if (ranks == this->ranks()) return shared_from_this();
    auto& group = subgroups_[ranks];
    if (!group) group = std::make_shared<StagedCommunicator>(carrier_->subgroup(ranks), device_);
    return group;
  }

 private:
  // The host writes its own memory at once, and not when the stream comes to it.
  void check(const std::vector<at::Tensor>& tensors) const {
    for (const auto& tensor : tensors) {
      if (tensor.device() != device_)
        throw InvalidArgument("A collective of " + device_.str() + " was given a tensor on " +
                              tensor.device().str() + ".");
    }
  }
  // What a backend writes is no operation on the tensor, whose autograd version stays.
  static at::Tensor memory_of(const at::Tensor& tensor) { return alias(tensor, 0, {tensor.numel()}); }
  static at::Tensor pinned_like(const at::Tensor& tensor) {
    return at::empty({tensor.numel()}, at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
  }
  static at::Tensor on_host(const at::Tensor& tensor) {
    auto host = pinned_like(tensor);
    return host.copy_(memory_of(tensor), /*non_blocking=*/true);
  }
  static Reduction multiplied(const at::Tensor& sent, const Reduction& reduction) {
    if (reduction.op != ReduceOp::premul_sum) return reduction;
    auto factors = sent;
    factors.mul_(reduction.factor);
    return {ReduceOp::sum};
  }

  void carry(Job job) const {
    if (driver_) {
      driver_->put(std::move(job));
    } else {
      StreamEvent::record(device_).synchronize();
      job();  // nobody to wait for
    }
  }
  WorkPtr handed_back(const at::Tensor& out, const at::Tensor& received, const at::Tensor& in) {
    memory_of(out).copy_(received, /*non_blocking=*/true);
    return std::make_unique<StagedWork>(shared_from_this(), std::vector<at::Tensor>{out, in});
  }

  class StagedWork : public StreamWork {
   public:
    StagedWork(const std::shared_ptr<StagedCommunicator>& group, std::vector<at::Tensor> tensors)
        : StreamWork(group, std::move(tensors)), staged_(group.get()) {}
    void wait() override {
      if (staged_->driver_) staged_->driver_->check();
      StreamWork::wait();
    }

   private:
    const StagedCommunicator* staged_;  // kept by StreamWork
  };

  std::shared_ptr<Communicator> carrier_;
  at::Device device_;
  std::unique_ptr<Driver> driver_;  // null in a group of one
  std::map<std::vector<int64_t>, std::shared_ptr<Communicator>> subgroups_;
};

}  // namespace

std::shared_ptr<Communicator> make_staged_communicator(std::shared_ptr<Communicator> carrier,
                                                       at::Device device) {
  if (device.is_cpu())
    throw InvalidArgument("Tensors of the CPU need no staging: use the group that was to carry them.");
  return std::make_shared<StagedCommunicator>(std::move(carrier), device);
}

}  // namespace fsdp
