// A sharded model trained on Gloo against the same model, unsharded, with averaged gradients: equal to the
// last bit at world 2, where a sum has no order, and at 4 because both add in rank order.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

struct Case {
  int64_t world;
  std::vector<int64_t> dims;
  ReshardAfterForward reshard;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << "world " << c.world << " reshard " << c.reshard.index();
}

class TrainingParity : public ::testing::TestWithParam<Case> {};

TEST_P(TrainingParity, EqualsMeanOfGradients) {
  const auto& [world, dims, reshard] = GetParam();
  run_ranks(world, [&, world = world](const Rank& rank) {
    Mlp model(dims, true), reference(dims, true);
    initialize(*model);
    initialize(*reference);
    shard(model, {.mesh = rank.mesh(), .reshard_after_forward = reshard});
    for (int64_t step = 0; step < 3; ++step) {
      const auto input = [&](int64_t r) { return values({4, dims.front()}, 100 + 10 * step + r); };
      zero_grad(*model);
      const auto loss = model(input(rank.rank)).sum();
      loss.backward();
      at::Tensor expected_loss;
      average_gradients(reference, world, [&](int64_t r) {
        const auto value = reference(input(r)).sum();
        if (r == rank.rank) expected_loss = value.detach();
        return value;
      });
      EXPECT_TRUE(at::equal(loss.detach(), expected_loss)) << "loss of step " << step;
      expect_equal(*model, *reference, true);
      sgd_step(*model, 1.0 / 8);
      sgd_step(*reference, 1.0 / 8);
      expect_equal(*model, *reference, false);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, TrainingParity,
                         ::testing::Values(Case{1, {8, 6, 4}, std::monostate{}},
                                           Case{2, {8, 6, 4}, std::monostate{}}, Case{2, {8, 6, 4}, true},
                                           Case{2, {8, 6, 4}, false}, Case{2, {5, 7, 3, 1}, true},
                                           Case{4, {8, 6, 4}, true}, Case{4, {8, 6, 4}, int64_t{2}},
                                           Case{4, {5, 7, 3, 1}, int64_t{2}}, Case{4, {3, 5, 1}, false}));

}  // namespace
}  // namespace fsdp::testing
