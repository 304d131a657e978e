#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "comm/store_group.hpp"
#include "comm/stream_work.hpp"
#include "fsdp/comm/nccl.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

c10d::ReduceOp reduce_op(const Reduction& reduction) {
  switch (reduction.op) {
    case ReduceOp::avg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
    case ReduceOp::premul_sum:
      return c10d::makeNCCLPreMulSum(reduction.factor);
    default:
      return c10d::ReduceOp::SUM;
  }
}

class NcclCommunicator : public StoreGroup {
 public:
  NcclCommunicator(GroupMembers members, c10::DeviceIndex device)
      : StoreGroup(std::move(members)), device_(device) {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = this->members().timeout;
    group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(meeting_store(), static_cast<int>(rank()),
                                                         static_cast<int>(size()), options);
  }

  at::Device device() const override { return {at::kCUDA, device_}; }

  WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite&) override {
    c10d::AllgatherOptions options;
    options.asyncOp = false;
    group_->_allgather_base(out, in, options);
    return work({out, in});
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduction reduction, const CallSite&) override {
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduce_op(reduction);
    options.asyncOp = false;
    group_->_reduce_scatter_base(out, in, options);
    return work({out, in});
  }
  WorkPtr all_reduce(at::Tensor tensor, Reduction reduction, const CallSite&) override {
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op(reduction);
    std::vector<at::Tensor> tensors{std::move(tensor)};
    options.asyncOp = false;
    group_->allreduce(tensors, options);
    return work(std::move(tensors));
  }
  WorkPtr broadcast(at::Tensor tensor, int64_t root, const CallSite&) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> tensors{std::move(tensor)};
    options.asyncOp = false;
    group_->broadcast(tensors, options);
    return work(std::move(tensors));
  }

 private:
  std::shared_ptr<Communicator> make_subgroup(GroupMembers members) const override {
    return std::make_shared<NcclCommunicator>(std::move(members), device_);
  }

  WorkPtr work(std::vector<at::Tensor> tensors) {
    return std::make_unique<StreamWork>(shared_from_this(), std::move(tensors));
  }

  c10::DeviceIndex device_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::shared_ptr<Communicator> make_nccl_communicator(const Rendezvous& rendezvous, int64_t device) {
  const int64_t devices = c10::cuda::device_count();
  if (device < 0 || device >= devices) {
    throw RuntimeError("Rank " + std::to_string(rendezvous.rank) + " asked for CUDA device " +
                       std::to_string(device) + ", but this machine shows " +
                       (devices == 0 ? "no CUDA device" : std::to_string(devices)) +
                       "; see nvidia-smi and CUDA_VISIBLE_DEVICES.");
  }
  const auto index = static_cast<c10::DeviceIndex>(device);
  c10::cuda::set_device(index);
  return std::make_shared<NcclCommunicator>(all_members(rendezvous), index);
}

}  // namespace fsdp
