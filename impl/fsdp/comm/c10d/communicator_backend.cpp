#include "comm/c10d/communicator_backend.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <mutex>

#include "base/streams.hpp"

namespace fsdp {
namespace {

using C10dWork = c10::intrusive_ptr<c10d::Work>;

/// Neither autograd nor what Python has put into the dispatcher is to see how a backend copies and adds.
struct BelowTheLibrary {
  at::AutoDispatchBelowADInplaceOrView autograd;
  c10::impl::ExcludeDispatchKeyGuard modes{c10::python_ks};
};

/// The memory of a contiguous tensor, which it keeps alive: one-dimensional, and with an autograd version of
/// its own, since what a backend writes is no operation on the tensor. Of no elements there is no address by which
/// a device could be found out.
at::Tensor memory_of(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.mutable_data_ptr(), {tensor.numel()}, [tensor](void*) {},
      tensor.options().requires_grad(false).memory_format(std::nullopt), tensor.device());
}

/// Whether the tensors are the blocks of one piece of memory, in order.
bool are_blocks(const std::vector<at::Tensor>& tensors) {
  const auto* next = static_cast<const std::byte*>(tensors.front().const_data_ptr());
  for (const auto& tensor : tensors) {
    if (!tensor.is_contiguous() || tensor.const_data_ptr() != next) return false;
    if (!tensor.storage().is_alias_of(tensors.front().storage())) return false;
    next += tensor.nbytes();
  }
  return true;
}

void check_equal_blocks(const std::vector<at::Tensor>& tensors, const at::Tensor& like, size_t count) {
  TORCH_CHECK_VALUE(tensors.size() == count, "expected one tensor for each of ", count, " ranks, got ",
                    tensors.size());
  for (const auto& tensor : tensors)
    TORCH_CHECK_VALUE(tensor.numel() == like.numel() && tensor.scalar_type() == like.scalar_type(),
                      "expected tensors of ", like.numel(), " x ", like.scalar_type(), ", got ",
                      tensor.numel(), " x ", tensor.scalar_type());
}

void check_sizes(const at::Tensor& large, const at::Tensor& small, int64_t count) {
  TORCH_CHECK_VALUE(large.numel() == small.numel() * count && large.scalar_type() == small.scalar_type(),
                    "expected tensors of which one is ", count, " times the other, got ", large.numel(),
                    " x ", large.scalar_type(), " and ", small.numel(), " x ", small.scalar_type());
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "expected one tensor, got ", tensors.size());
  return tensors.front();
}

const std::vector<at::Tensor>& only(const std::vector<std::vector<at::Tensor>>& lists) {
  TORCH_CHECK_VALUE(lists.size() == 1, "expected one list of tensors, got ", lists.size());
  return lists.front();
}

Reduction reduction_of(const c10d::ReduceOp& op, const std::string& backend) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {ReduceOp::sum};
    case c10d::ReduceOp::AVG:
      return {ReduceOp::avg};
    case c10d::ReduceOp::MAX:
      return {ReduceOp::max};
    case c10d::ReduceOp::PREMUL_SUM: {  // refused by the communicators of the CPU
      const auto* given = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK(given != nullptr && !given->tensor_factor.defined(), "Backend ", backend,
                  " takes the factor of PREMUL_SUM as a number");
      return {ReduceOp::premul_sum, given->double_factor};
    }
    default:
      TORCH_CHECK(false, "Backend ", backend,
                  " has the reductions SUM, AVG and MAX, on an accelerator PREMUL_SUM too, and no other");
  }
}

class CollectiveWork : public c10d::Work {
 public:
  CollectiveWork(int rank, c10d::OpType type, std::vector<WorkPtr> parts, std::function<void()> finish,
                 std::vector<at::Tensor> results)
      : c10d::Work(rank, type),
        parts_(std::move(parts)),
        finish_(std::move(finish)),
        results_(std::move(results)) {}
  ~CollectiveWork() override { complete(); }

  bool isCompleted() override {
    complete();
    return true;
  }
  bool wait(std::chrono::milliseconds) override {
    complete();
    if (const auto failure = exception()) std::rethrow_exception(failure);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override {
    wait(kNoTimeout);
    return results_;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    complete();
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (const auto failure = exception())
      future->setError(failure);
    else
      future->markCompleted(c10::IValue(results_));
    return future;
  }

 private:
  void complete() {
    const std::lock_guard lock(completing_);
    if (done_) return;
    done_ = true;
    try {
      for (auto& part : parts_) part->wait();
      if (finish_) {
        const BelowTheLibrary guard;
        finish_();
      }
      parts_.clear();
      finish_ = nullptr;
      c10d::Work::finish();
    } catch (...) {
      c10d::Work::finish(std::current_exception());
    }
  }

  std::mutex completing_;
  bool done_ = false;
  std::vector<WorkPtr> parts_;
  std::function<void()> finish_;
  std::vector<at::Tensor> results_;
};

}  // namespace

/// One call of c10d on its way to the communicator: its tensors as the communicator takes them, and what is
/// to be copied back when it has done its part.
class CommunicatorBackend::Issue {
 public:
  Issue(CommunicatorBackend& backend, c10d::OpType type) : backend_(backend), type_(type) {
    ++backend.issued_;
  }

  Communicator& group() { return *backend_.group_; }
  size_t size() { return static_cast<size_t>(group().size()); }
  static CallSite site() { return {}; }

  at::Tensor input(const at::Tensor& tensor) {
    check(tensor);
    return memory_of(tensor.contiguous());
  }
  at::Tensor output(const at::Tensor& tensor) {
    check(tensor);
    results_.push_back(tensor);
    if (tensor.is_contiguous()) return memory_of(tensor);
    auto staged = tensor.contiguous();
    later([tensor, staged] { tensor.copy_(staged); });
    return memory_of(staged);
  }
  /// For a reduction, which must not write where it still reads; c10d lets the output be a block of the
  /// input.
  at::Tensor output_beside(const at::Tensor& input, const at::Tensor& tensor) {
    if (!tensor.storage().is_alias_of(input.storage())) return output(tensor);
    check(tensor);
    results_.push_back(tensor);
    auto staged = scratch(tensor, tensor.numel());
    later([tensor, staged] { tensor.copy_(staged.view(tensor.sizes())); });
    return staged;
  }
  /// One piece of memory for a tensor from every rank; the blocks end up in `tensors`.
  at::Tensor output(const std::vector<at::Tensor>& tensors, const at::Tensor& like) {
    check_equal_blocks(tensors, like, size());
    for (const auto& tensor : tensors) check(tensor);
    results_.insert(results_.end(), tensors.begin(), tensors.end());
    const auto numel = like.numel();
    const auto total = numel * group().size();
    if (are_blocks(tensors))
      return at::from_blob(
          tensors.front().mutable_data_ptr(), {total}, [tensors](void*) {},
          like.options().requires_grad(false).memory_format(std::nullopt), like.device());
    auto staged = scratch(like, total);
    later([tensors, staged, numel] {
      for (size_t r = 0; r < tensors.size(); ++r)
        tensors[r].copy_(staged.narrow(0, static_cast<int64_t>(r) * numel, numel).view(tensors[r].sizes()));
    });
    return staged;
  }
  at::Tensor input(const std::vector<at::Tensor>& tensors, const at::Tensor& like) {
    check_equal_blocks(tensors, like, size());
    const auto numel = like.numel();
    auto staged = scratch(like, numel * group().size());
    for (size_t r = 0; r < tensors.size(); ++r) {
      check(tensors[r]);
      staged.narrow(0, static_cast<int64_t>(r) * numel, numel).copy_(tensors[r].reshape(-1));
    }
    return staged;
  }
  static at::Tensor scratch(const at::Tensor& like, int64_t numel) {
    return at::empty({numel}, like.options().requires_grad(false).memory_format(std::nullopt));
  }

  void results(std::vector<at::Tensor> tensors) { results_ = std::move(tensors); }
  void later(std::function<void()> step) { later_.push_back(std::move(step)); }
  void add(WorkPtr part) { parts_.push_back(std::move(part)); }

  C10dWork work() {
    std::function<void()> finish;
    if (!later_.empty())
      finish = [later = std::move(later_)] {
        for (const auto& step : later) step();
      };
    return c10::make_intrusive<CollectiveWork>(backend_.getRank(), type_, std::move(parts_),
                                               std::move(finish), std::move(results_));
  }

 private:
  void check(const at::Tensor& tensor) {
    TORCH_CHECK(tensor.layout() == at::kStrided && tensor.device() == group().device(), "Backend ",
                backend_.name_, " takes dense tensors on ", group().device(), ", not one with layout ",
                tensor.layout(), " on ", tensor.device());
  }

  BelowTheLibrary guard_;
  const CommunicatorBackend& backend_;
  c10d::OpType type_;
  std::vector<WorkPtr> parts_;
  std::vector<std::function<void()>> later_;
  std::vector<at::Tensor> results_;
};

CommunicatorBackend::CommunicatorBackend(std::shared_ptr<Communicator> group, std::string name)
    : c10d::Backend(static_cast<int>(group->rank()), static_cast<int>(group->size())),
      group_(std::move(group)),
      name_(std::move(name)) {}

C10dWork CommunicatorBackend::allreduce(std::vector<at::Tensor>& tensors,
                                        const c10d::AllreduceOptions& options) {
  Issue issue(*this, c10d::OpType::ALLREDUCE);
  issue.add(
      group_->all_reduce(issue.output(only(tensors)), reduction_of(options.reduceOp, name_), Issue::site()));
  return issue.work();
}

C10dWork CommunicatorBackend::allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                  const c10d::AllreduceCoalescedOptions& options) {
  Issue issue(*this, c10d::OpType::ALLREDUCE_COALESCED);
  const auto reduction = reduction_of(options.reduceOp, name_);
  for (const auto& tensor : tensors)
    issue.add(group_->all_reduce(issue.output(tensor), reduction, Issue::site()));
  return issue.work();
}

// Everybody adds, the root keeps: what others hold must stay as it is.
C10dWork CommunicatorBackend::reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) {
  Issue issue(*this, c10d::OpType::REDUCE);
  const auto tensor = only(tensors);
  at::Tensor sum;
  if (options.rootRank == group_->rank()) {
    sum = issue.output(tensor);
  } else {
    sum = issue.input(tensor).clone();
    issue.results({tensor});
  }
  issue.add(group_->all_reduce(sum, reduction_of(options.reduceOp, name_), Issue::site()));
  return issue.work();
}

C10dWork CommunicatorBackend::broadcast(std::vector<at::Tensor>& tensors,
                                        const c10d::BroadcastOptions& options) {
  Issue issue(*this, c10d::OpType::BROADCAST);
  issue.add(group_->broadcast(issue.output(only(tensors)), options.rootRank, Issue::site()));
  return issue.work();
}

C10dWork CommunicatorBackend::barrier(const c10d::BarrierOptions&) {
  Issue issue(*this, c10d::OpType::BARRIER);
  const auto device = group_->device();
  issue.add(group_->all_reduce(at::zeros({1}, at::TensorOptions(device).dtype(at::kByte)), {ReduceOp::max},
                               Issue::site()));
  issue.later([device] { StreamEvent::record(device).synchronize(); });  // hosts meet here, not streams
  return issue.work();
}

C10dWork CommunicatorBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions&) {
  Issue issue(*this, c10d::OpType::ALLGATHER);
  const auto input = only(inputs);
  issue.add(group_->all_gather(issue.output(only(outputs), input), issue.input(input), Issue::site()));
  return issue.work();
}

C10dWork CommunicatorBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::AllgatherOptions&) {
  Issue issue(*this, c10d::OpType::_ALLGATHER_BASE);
  check_sizes(output, input, getSize());
  issue.add(group_->all_gather(issue.output(output), issue.input(input), Issue::site()));
  return issue.work();
}

C10dWork CommunicatorBackend::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                              std::vector<at::Tensor>& inputs,
                                                              const c10d::AllgatherOptions&) {
  Issue issue(*this, c10d::OpType::ALLGATHER_COALESCED);
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "expected as many outputs as inputs");
  std::vector<Part> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_sizes(outputs[i], inputs[i], getSize());
    parts.push_back({issue.output(outputs[i]), issue.input(inputs[i])});
  }
  if (auto* partwise = group_->partwise()) {
    issue.add(partwise->all_gather(parts, Issue::site()));
  } else {
    for (const auto& part : parts) issue.add(group_->all_gather(part.large, part.small, Issue::site()));
  }
  return issue.work();
}

C10dWork CommunicatorBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                             std::vector<std::vector<at::Tensor>>& inputs,
                                             const c10d::ReduceScatterOptions& options) {
  Issue issue(*this, c10d::OpType::REDUCE_SCATTER);
  const auto& output = only(outputs);
  const auto input = issue.input(only(inputs), output);
  issue.add(group_->reduce_scatter(issue.output(output), input, reduction_of(options.reduceOp, name_),
                                   Issue::site()));
  return issue.work();
}

C10dWork CommunicatorBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::ReduceScatterOptions& options) {
  Issue issue(*this, c10d::OpType::_REDUCE_SCATTER_BASE);
  check_sizes(input, output, getSize());
  issue.add(group_->reduce_scatter(issue.output_beside(input, output), issue.input(input),
                                   reduction_of(options.reduceOp, name_), Issue::site()));
  return issue.work();
}

C10dWork CommunicatorBackend::reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                              std::vector<at::Tensor>& inputs,
                                                              const c10d::ReduceScatterOptions& options) {
  Issue issue(*this, c10d::OpType::COALESCED);
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "expected as many outputs as inputs");
  const auto reduction = reduction_of(options.reduceOp, name_);
  std::vector<Part> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_sizes(inputs[i], outputs[i], getSize());
    parts.push_back({issue.input(inputs[i]), issue.output_beside(inputs[i], outputs[i])});
  }
  if (auto* partwise = group_->partwise()) {
    issue.add(partwise->reduce_scatter(parts, reduction, Issue::site()));
  } else {
    for (const auto& part : parts)
      issue.add(group_->reduce_scatter(part.small, part.large, reduction, Issue::site()));
  }
  return issue.work();
}

// Everybody hears all, and all but the root forget it.
C10dWork CommunicatorBackend::gather(std::vector<std::vector<at::Tensor>>& outputs,
                                     std::vector<at::Tensor>& inputs, const c10d::GatherOptions& options) {
  Issue issue(*this, c10d::OpType::GATHER);
  const auto& input = only(inputs);
  const auto gathered = options.rootRank == group_->rank()
                            ? issue.output(only(outputs), input)
                            : Issue::scratch(input, input.numel() * group_->size());
  issue.add(group_->all_gather(gathered, issue.input(input), Issue::site()));
  return issue.work();
}

// Everybody hears all, and keeps what is its own.
C10dWork CommunicatorBackend::scatter(std::vector<at::Tensor>& outputs,
                                      std::vector<std::vector<at::Tensor>>& inputs,
                                      const c10d::ScatterOptions& options) {
  Issue issue(*this, c10d::OpType::SCATTER);
  const auto& output = only(outputs);
  const auto numel = output.numel();
  const auto all = options.rootRank == group_->rank() ? issue.input(only(inputs), output)
                                                      : Issue::scratch(output, numel * group_->size());
  issue.add(group_->broadcast(all, options.rootRank, Issue::site()));
  const auto own = all.narrow(0, group_->rank() * numel, numel);
  issue.later([output, own] { output.copy_(own.view(output.sizes())); });
  issue.results({output});
  return issue.work();
}

}  // namespace fsdp
