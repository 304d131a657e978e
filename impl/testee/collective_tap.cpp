#include "impl/testee/collective_tap.hpp"

#include <map>
#include <utility>

#include "harness/sdk/cpp/tensors.hpp"

namespace fsdp_cts::testee {
namespace {

const char* name_of(fsdp::ReduceOp op) {
  switch (op) {
    case fsdp::ReduceOp::sum:
    case fsdp::ReduceOp::premul_sum:
      return "sum";
    case fsdp::ReduceOp::avg:
      return "avg";
    case fsdp::ReduceOp::max:
      return "max";
  }
  return "sum";
}

}  // namespace

class CollectiveTap::Tapped : public fsdp::Communicator, public fsdp::PartwiseCollectives {
 public:
  Tapped(std::shared_ptr<fsdp::Communicator> inner, std::shared_ptr<State> state)
      : inner_(std::move(inner)), state_(std::move(state)) {}

  std::int64_t rank() const override { return inner_->rank(); }
  const std::vector<std::int64_t>& ranks() const override { return inner_->ranks(); }
  at::Device device() const override { return inner_->device(); }

  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite& site) override {
    note("all_gather", std::nullopt, in.scalar_type(), in.numel(), out.numel(), site);
    return inner_->all_gather(std::move(out), std::move(in), site);
  }
  fsdp::WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, fsdp::Reduction reduction,
                               const fsdp::CallSite& site) override {
    wait_before_reduction(site);
    note("reduce_scatter", reduction, in.scalar_type(), in.numel(), out.numel(), site);
    return inner_->reduce_scatter(std::move(out), std::move(in), reduction, site);
  }
  fsdp::WorkPtr all_reduce(at::Tensor tensor, fsdp::Reduction reduction,
                           const fsdp::CallSite& site) override {
    wait_before_reduction(site);
    note("all_reduce", reduction, tensor.scalar_type(), tensor.numel(), tensor.numel(), site);
    return inner_->all_reduce(std::move(tensor), reduction, site);
  }
  fsdp::WorkPtr broadcast(at::Tensor tensor, std::int64_t root, const fsdp::CallSite& site) override {
    note("broadcast", std::nullopt, tensor.scalar_type(), tensor.numel(), tensor.numel(), site);
    return inner_->broadcast(std::move(tensor), root, site);
  }
  fsdp::PartwiseCollectives* partwise() override { return inner_->partwise() ? this : nullptr; }
  fsdp::WorkPtr all_gather(const std::vector<fsdp::Part>& parts, const fsdp::CallSite& site) override {
    const auto [small, large] = sizes(parts);
    note("all_gather", std::nullopt, parts.front().small.scalar_type(), small, large, site);
    return inner_->partwise()->all_gather(parts, site);
  }
  fsdp::WorkPtr reduce_scatter(const std::vector<fsdp::Part>& parts, fsdp::Reduction reduction,
                               const fsdp::CallSite& site) override {
    wait_before_reduction(site);
    const auto [small, large] = sizes(parts);
    note("reduce_scatter", reduction, parts.front().small.scalar_type(), large, small, site);
    return inner_->partwise()->reduce_scatter(parts, reduction, site);
  }
  std::shared_ptr<fsdp::Communicator> subgroup(const std::vector<std::int64_t>& ranks) override {
    auto& group = subgroups_[ranks];
    if (!group) group = std::make_shared<Tapped>(inner_->subgroup(ranks), state_);
    return group;
  }

 private:
  // Several parts count as the one tensor that they make up, padding included, however they travel.
  std::pair<std::int64_t, std::int64_t> sizes(const std::vector<fsdp::Part>& parts) const {
    std::int64_t small = 0;
    for (const fsdp::Part& part : parts) small += part.small.numel();
    return {small, size() * small};
  }

  void wait_before_reduction(const fsdp::CallSite& site) const {
    if (site.has_unit && site.phase == fsdp::Phase::backward) state_->wait(state_->before_reduction);
  }

  void note(const char* op, std::optional<fsdp::Reduction> reduction, at::ScalarType dtype, std::int64_t in,
            std::int64_t out, const fsdp::CallSite& site) {
    if (!state_->into) return;
    state_->into->collective({op, sdk::dtype_name(dtype),
                              reduction ? std::optional<std::string>(name_of(reduction->op)) : std::nullopt,
                              in, out, std::vector<int>(ranks().begin(), ranks().end()),
                              site.has_unit ? std::optional(site.unit) : std::nullopt});
  }

  std::shared_ptr<fsdp::Communicator> inner_;
  std::shared_ptr<State> state_;
  std::map<std::vector<std::int64_t>, std::shared_ptr<fsdp::Communicator>> subgroups_;
};

std::shared_ptr<fsdp::Communicator> CollectiveTap::under(std::shared_ptr<fsdp::Communicator> group) {
  return std::make_shared<Tapped>(std::move(group), state_);
}

}  // namespace fsdp_cts::testee
