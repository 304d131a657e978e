#pragma once
// The other direction: a Communicator as a backend of PyTorch's c10d, so that PyTorch's own FSDP runs over
// it.
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// What FSDP, DTensor and the checkpoints of PyTorch ask for. The others (send, recv, all-to-all, …) say, as
/// c10d's base class does, that the backend lacks them, and so does a reduction other than SUM, AVG, MAX and,
/// on an accelerator, PREMUL_SUM.
///
/// As over c10d's other backends a tensor may have any shape, need not be contiguous, keeps its autograd
/// version, and dropping a Work does not undo its collective. There is no thread behind a Work: it makes its
/// progress in `wait`, so `isCompleted` and `getFuture` wait too, and the timeout is the group's. Threads: as
/// the communicator.
class CommunicatorBackend : public c10d::Backend {
 public:
  CommunicatorBackend(std::shared_ptr<Communicator> group, std::string name);

  const std::string getBackendName() const override { return name_; }
  /// How many collectives this rank has issued. TORCH_DISTRIBUTED_DEBUG=DETAIL names it where ranks part.
  uint64_t getSequenceNumberForGroup() override { return issued_; }
  void setSequenceNumberForGroup() override {}  // every rank counts from nothing

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options) override;

  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& options) override;

  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;

 private:
  class Issue;

  std::shared_ptr<Communicator> group_;
  std::string name_;
  uint64_t issued_ = 0;
};

}  // namespace fsdp
