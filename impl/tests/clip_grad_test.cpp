// The total norm is that of the whole gradient, whatever rank holds which part.
#include "fsdp/clip_grad.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class ClipGradNorm : public ::testing::TestWithParam<std::pair<int64_t, double>> {};

TEST_P(ClipGradNorm, EqualsTheUnshardedOne) {
  const auto [world, norm_type] = GetParam();
  run_ranks(world, [world = world, norm_type = norm_type](const Rank& rank) {
    Mlp model(std::vector<int64_t>{5, 7, 3}, true), reference(std::vector<int64_t>{5, 7, 3}, true);
    initialize(*model);
    initialize(*reference);
    // Of three rows the last of four ranks holds none: a norm of nothing is asked for, too.
    fully_shard(model->layers[0], {.mesh = rank.mesh()});
    fully_shard(model, {.mesh = rank.mesh()});
    const auto loss = [](Mlp& net) { return net(values({4, 5}, 3)).sum(); };  // the same on every rank
    loss(model).backward();
    loss(reference).backward();
    double expected = 0;
    for (const auto& parameter : reference->parameters()) {
      const auto norm = at::linalg_vector_norm(parameter.grad().to(at::kDouble), norm_type).item<double>();
      expected = std::isinf(norm_type) ? std::max(expected, norm) : expected + std::pow(norm, norm_type);
    }
    if (!std::isinf(norm_type)) expected = std::pow(expected, 1 / norm_type);
    rank.trace->take();
    EXPECT_NEAR(clip_grad_norm_(*model, 1e9, norm_type).item<double>(), expected, 1e-5 * expected);
    const auto events = rank.trace->take();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].kind, CollectiveKind::all_reduce);
    EXPECT_EQ(events[0].reduction.op, std::isinf(norm_type) ? ReduceOp::max : ReduceOp::sum);
    expect_equal(*model, *reference, true);

    const auto before = full_values(*model, true);
    EXPECT_NEAR(clip_grad_norm_(*model, 0.5, norm_type).item<double>(), expected, 1e-5 * expected);
    const auto after = full_values(*model, true);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_TRUE(at::allclose(after[i], before[i] * (0.5 / (expected + 1e-6)))) << i;
    }
    EXPECT_NEAR(clip_grad_norm_(*model, 1e9, norm_type).item<double>(), 0.5, 1e-5);
  });
}

// Its gradient is this rank's own: with it every rank would scale its shards by another number.
TEST(ClipGradNormTest, RefusesGradientsOutsideOfFsdp) {
  run_ranks(2, [](const Rank& rank) {
    Mlp model(std::vector<int64_t>{5, 7, 3}, true);
    initialize(*model);
    fully_shard(model, {.mesh = rank.mesh(), .ignored_params = model->layers[1]->parameters()});
    model(values({4, 5}, rank.rank)).sum().backward();
    const auto before = full_values(*model, true);
    EXPECT_THAT(message_of<InvalidArgument>([&] { clip_grad_norm_(*model, 0.1); }),
                ::testing::HasSubstr("'layer1.weight' has a gradient and is not sharded"));
    const auto after = full_values(*model, true);
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(at::equal(before[i], after[i])) << "nothing was scaled";
    Linear plain(2, 2);
    EXPECT_THROW(clip_grad_norm_(*plain, 1.0), InvalidArgument);
  });
}

INSTANTIATE_TEST_SUITE_P(All, ClipGradNorm,
                         ::testing::Values(std::pair{1, 2.0}, std::pair{2, 1.0}, std::pair{2, 2.0},
                                           std::pair{2, kInfinity}, std::pair{4, 2.0},
                                           std::pair{4, kInfinity}, std::pair{2, 3.0}));

}  // namespace
}  // namespace fsdp::testing
