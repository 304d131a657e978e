// Large parameters go past the flat buffers. What comes out, and what the trace says, is the same as through
// them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "per_parameter/state.hpp"
#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

struct Case {
  const char* name;
  int64_t world;
  std::vector<int64_t> dims;
  ReshardAfterForward reshard = true;
  MixedPrecisionPolicy policy = {};
  std::vector<int64_t> mesh = {};
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class InPlace : public ::testing::TestWithParam<Case> {};

struct Outcome {
  std::vector<at::Tensor> losses, gradients, parameters;
  std::vector<CollectiveEvent> trace;
};

/// A group whose collectives move one tensor and no more, so that everything goes through the buffers.
class OneTensorGroup : public Communicator {
 public:
  explicit OneTensorGroup(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int64_t rank() const override { return inner_->rank(); }
  const std::vector<int64_t>& ranks() const override { return inner_->ranks(); }
  at::Device device() const override { return inner_->device(); }
  WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite& site) override {
    return inner_->all_gather(std::move(out), std::move(in), site);
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduction reduction, const CallSite& site) override {
    return inner_->reduce_scatter(std::move(out), std::move(in), reduction, site);
  }
  WorkPtr all_reduce(at::Tensor tensor, Reduction reduction, const CallSite& site) override {
    return inner_->all_reduce(std::move(tensor), reduction, site);
  }
  WorkPtr broadcast(at::Tensor tensor, int64_t root, const CallSite& site) override {
    return inner_->broadcast(std::move(tensor), root, site);
  }
  std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>& ranks) override {
    return std::make_shared<OneTensorGroup>(inner_->subgroup(ranks));
  }

 private:
  std::shared_ptr<Communicator> inner_;
};

Outcome train(const Rank& rank, const Case& c, const std::shared_ptr<Communicator>& world) {
  Mlp model(c.dims);
  initialize(*model);
  const auto mesh = c.mesh.empty() ? DeviceMesh(world) : DeviceMesh(world, c.mesh, {"replicate", "shard"});
  shard(model, {.mesh = mesh, .reshard_after_forward = c.reshard, .mp_policy = c.policy});
  Outcome outcome;
  rank.trace->take();
  for (int64_t step = 0; step < 2; ++step) {
    zero_grad(*model);
    const auto loss = model(values({4, c.dims.front()}, 10 * step + rank.rank)).sum();
    loss.backward();
    outcome.losses.push_back(loss.detach());
    sgd_step(*model, 1.0 / 64);
  }
  outcome.trace = rank.trace->take();
  outcome.gradients = full_values(*model, true);
  outcome.parameters = full_values(*model);
  return outcome;
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << what << ' ' << i;
}

TEST_P(InPlace, IsAsThroughTheBuffers) {
  const auto& c = GetParam();
  run_ranks(c.world, [&](const Rank& rank) {
    const auto direct = train(rank, c, rank.recorded);
    const auto packed = train(rank, c, std::make_shared<OneTensorGroup>(rank.recorded));
    expect_same(direct.losses, packed.losses, "loss");
    expect_same(direct.gradients, packed.gradients, "gradient");
    expect_same(direct.parameters, packed.parameters, "parameter");
    ASSERT_EQ(direct.trace.size(), packed.trace.size());
    for (size_t i = 0; i < direct.trace.size(); ++i) {
      EXPECT_EQ(direct.trace[i].kind, packed.trace[i].kind);
      EXPECT_EQ(direct.trace[i].dtype, packed.trace[i].dtype);
      EXPECT_EQ(direct.trace[i].in_numel, packed.trace[i].in_numel);
      EXPECT_EQ(direct.trace[i].out_numel, packed.trace[i].out_numel);
    }
  });
}

// 515 rows leave the last rank a short piece, 5 rows leave the last of four none. Pieces of 128 KiB and more
// are large.
INSTANTIATE_TEST_SUITE_P(
    All, InPlace,
    ::testing::Values(Case{"alone", 1, {260, 515, 4}}, Case{"two", 2, {260, 515, 520}},
                      Case{"kept_after_forward", 2, {260, 515, 4}, false}, Case{"four", 4, {260, 515, 4}},
                      Case{"empty_piece", 4, {33000, 5}}, Case{"smaller_group", 4, {260, 516, 4}, int64_t{2}},
                      Case{"cast", 2, {520, 515, 4}, true, {.param_dtype = at::kBFloat16}},
                      Case{"cast_and_wider_reduction",
                           2,
                           {520, 515, 4},
                           true,
                           {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}},
                      Case{"hybrid", 4, {260, 515, 4}, true, {}, {2, 2}}),
    [](const auto& each) { return each.param.name; });

// A gather that nobody waits for, of a unit that does not run, leaves no unsharded memory behind.
TEST(InPlaceGather, ThatIsNotUsedIsFreedAfterBackward) {
  run_ranks(2, [](const Rank& rank) {
    Mlp model(std::vector<int64_t>{260, 515, 4});
    initialize(*model);
    shard(model, {.mesh = rank.mesh()});
    model(values({4, 260}, 0)).sum().backward();
    const auto unit = FSDPModule::of(*model->layers[0]);
    const auto& full = unit.state()->group()->params().front()->full();
    EXPECT_EQ(full.storage().nbytes(), 0U);
    FSDPModule(unit).unshard(/*async_op=*/true);
    EXPECT_EQ(full.storage().nbytes(), 516U * 260 * sizeof(float));
    model->layers[1](values({4, 515}, 0)).sum().backward();
    EXPECT_EQ(full.storage().nbytes(), 0U);
    EXPECT_EQ(unit.sharded_state(), ShardedState::sharded);
  });
}

}  // namespace
}  // namespace fsdp::testing
