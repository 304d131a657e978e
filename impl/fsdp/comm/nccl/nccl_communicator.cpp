#include "fsdp/comm/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <map>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

class NcclWork : public Work {
 public:
  explicit NcclWork(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  void wait() override {
    if (auto work = std::exchange(work_, nullptr)) work->wait();
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

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

class NcclCommunicator : public Communicator, public std::enable_shared_from_this<NcclCommunicator> {
 public:
  NcclCommunicator(c10::intrusive_ptr<c10d::Store> store, int64_t world_rank, std::vector<int64_t> ranks,
                   NcclOptions options)
      : store_(std::move(store)),
        world_rank_(world_rank),
        ranks_(std::move(ranks)),
        options_(std::move(options)) {
    const auto own = std::find(ranks_.begin(), ranks_.end(), world_rank);
    if (own == ranks_.end()) throw ValueError("A group of ranks can only be made by its members.");
    rank_ = own - ranks_.begin();
    auto group_options = c10d::ProcessGroupNCCL::Options::create();
    group_options->timeout = options_.timeout;
    std::string name = "fsdp";
    for (const auto rank : ranks_) name.append("/").append(std::to_string(rank));
    group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>(name, store_),
                                                         static_cast<int>(rank_), static_cast<int>(size()),
                                                         group_options);
  }

  int64_t rank() const override { return rank_; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  at::Device device() const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(options_.device)}; }

  WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite&) override {
    return std::make_unique<NcclWork>(group_->_allgather_base(out, in, {}));
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduction reduction, const CallSite&) override {
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduce_op(reduction);
    return std::make_unique<NcclWork>(group_->_reduce_scatter_base(out, in, options));
  }
  WorkPtr all_reduce(at::Tensor tensor, Reduction reduction, const CallSite&) override {
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op(reduction);
    std::vector<at::Tensor> tensors{std::move(tensor)};
    return std::make_unique<NcclWork>(group_->allreduce(tensors, options));
  }
  WorkPtr broadcast(at::Tensor tensor, int64_t root, const CallSite&) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> tensors{std::move(tensor)};
    return std::make_unique<NcclWork>(group_->broadcast(tensors, options));
  }

  std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>& ranks) override {
    if (ranks == ranks_) return shared_from_this();
    auto& group = subgroups_[ranks];
    if (!group) group = std::make_shared<NcclCommunicator>(store_, world_rank_, ranks, options_);
    return group;
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  int64_t world_rank_;
  std::vector<int64_t> ranks_;
  NcclOptions options_;
  int64_t rank_ = 0;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  std::map<std::vector<int64_t>, std::shared_ptr<Communicator>> subgroups_;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::shared_ptr<Communicator> make_nccl_communicator(const NcclOptions& options) {
  c10::intrusive_ptr<c10d::Store> store;
  if (!options.file_store.empty()) {
    store = c10::make_intrusive<c10d::FileStore>(options.file_store, static_cast<int>(options.world_size));
  } else {
    c10d::TCPStoreOptions tcp;
    tcp.port = options.port;
    tcp.isServer = options.rank == 0;
    tcp.numWorkers = static_cast<size_t>(options.world_size);
    tcp.timeout = options.timeout;
    store = c10::make_intrusive<c10d::TCPStore>(options.host, tcp);
  }
  std::vector<int64_t> ranks(static_cast<size_t>(options.world_size));
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int64_t>(r);
  return std::make_shared<NcclCommunicator>(store, options.rank, ranks, options);
}

}  // namespace fsdp
