#include "fsdp/comm/dummy_group.hpp"

#include <numeric>

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

class DummyGroup : public Communicator, public std::enable_shared_from_this<DummyGroup> {
 public:
  DummyGroup(int64_t rank, int64_t size) : rank_(rank), ranks_(static_cast<size_t>(size)) {
    std::iota(ranks_.begin(), ranks_.end(), int64_t{0});
  }
  int64_t rank() const override { return rank_; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  at::Device device() const override { return at::kCPU; }
  WorkPtr all_gather(at::Tensor, at::Tensor, const CallSite&) override { refuse("all-gather"); }
  WorkPtr reduce_scatter(at::Tensor, at::Tensor, Reduction, const CallSite&) override {
    refuse("reduce-scatter");
  }
  WorkPtr all_reduce(at::Tensor, Reduction, const CallSite&) override { refuse("all-reduce"); }
  WorkPtr broadcast(at::Tensor, int64_t, const CallSite&) override { refuse("broadcast"); }
  std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>& ranks) override {
    if (ranks == ranks_) return shared_from_this();
    refuse("make subgroups");
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw RuntimeError("Rank " + std::to_string(rank_) + " of a dummy group of " + std::to_string(size()) +
                       " ranks cannot " + what + ": give the unit a group that communicates.");
  }
  int64_t rank_;
  std::vector<int64_t> ranks_;
};

}  // namespace

std::shared_ptr<Communicator> make_dummy_group(int64_t rank, int64_t size) {
  return std::make_shared<DummyGroup>(rank, size);
}

}  // namespace fsdp
