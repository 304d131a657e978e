// FSDP1 on Gloo against the same model, unsharded, with averaged gradients: equal to the last bit, as the
// data are multiples of a power of two and few steps are taken.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/flat/inspection.hpp"
#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using flat::BackwardPrefetch;
using flat::FSDPOptions;
using flat::FullyShardedDataParallel;
using flat::ShardingStrategy;
using Dims = std::vector<int64_t>;

void wrap(Mlp& model, const FSDPOptions& options) {
  for (const auto& layer : model->layers) FullyShardedDataParallel(layer, options);
  FullyShardedDataParallel(model, options);
}

void expect_parameters(const Mlp& model, const Mlp& whole) {
  auto scope = FullyShardedDataParallel::summon_full_params(*model, {.writeback = false});
  const auto actual = model->named_parameters(), expected = whole->named_parameters();
  ASSERT_EQ(actual.keys(), expected.keys());
  for (const auto& entry : expected) {
    EXPECT_TRUE(at::equal(actual[entry.key()], entry.value())) << entry.key();
  }
  scope.leave();
}

void step(const Mlp& model, double lr) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) {
    if (!parameter.mutable_grad().defined()) continue;
    EXPECT_EQ(parameter.sizes(), parameter.mutable_grad().sizes());
    parameter.add_(parameter.mutable_grad(), -lr);
  }
}

struct Case {
  int64_t world;
  ShardingStrategy strategy;
  bool use_orig_params;
  BackwardPrefetch prefetch = BackwardPrefetch::backward_pre;
  bool forward_prefetch = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << "world " << c.world << " " << flat::python_name(c.strategy)
       << (c.use_orig_params ? " orig" : " flat") << " prefetch " << static_cast<int>(c.prefetch)
       << (c.forward_prefetch ? " forward" : "");
}

class FlatTraining : public ::testing::TestWithParam<Case> {};

TEST_P(FlatTraining, EqualsMeanOfGradients) {
  const auto c = GetParam();
  run_ranks(c.world, [&c](const Rank& rank) {
    Mlp model(Dims{8, 6, 4}, true), whole(Dims{8, 6, 4}, true);
    initialize(*model);
    initialize(*whole);
    wrap(model, {.process_group = rank.recorded,
                 .sharding_strategy = c.strategy,
                 .backward_prefetch = c.prefetch,
                 .forward_prefetch = c.forward_prefetch,
                 .use_orig_params = c.use_orig_params});
    const bool sharded = c.strategy != ShardingStrategy::no_shard && c.world > 1;
    const bool full_shard = c.strategy == ShardingStrategy::full_shard && sharded;
    for (int64_t number = 0; number < 3; ++number) {
      const auto input = [&](int64_t r) { return values({4, 8}, 100 * number + r); };
      rank.trace->take();
      auto loss = model(input(rank.rank)).sum();
      loss.backward();
      int64_t gathers[2] = {0, 0}, scatters = 0, reduces = 0;
      for (const auto& event : rank.trace->take()) {
        if (event.kind == CollectiveKind::all_gather) ++gathers[event.site.phase == Phase::backward];
        if (event.kind == CollectiveKind::reduce_scatter) ++scatters;
        if (event.kind == CollectiveKind::all_reduce) ++reduces;
      }
      EXPECT_EQ(gathers[0], sharded ? 3 : 0);
      EXPECT_EQ(gathers[1], full_shard ? 2 : 0) << "the root is not gathered again";
      EXPECT_EQ(scatters, sharded ? 3 : 0);
      EXPECT_EQ(reduces, sharded ? 0 : 3);
      average_gradients(whole, c.world, [&](int64_t r) { return whole(input(r)).sum(); });
      step(model, 1.0 / 8);
      sgd_step(*whole, 1.0 / 8);
      expect_parameters(model, whole);
      zero_grad(*model);
    }
    for (const auto& [name, unit] : flat::named_units(*model))
      EXPECT_EQ(unit.training_state(), flat::TrainingState::idle);
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto strategy :
       {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op, ShardingStrategy::no_shard}) {
    for (const bool use_orig_params : {true, false}) {
      all.push_back({2, strategy, use_orig_params});
      all.push_back({4, strategy, use_orig_params});
    }
  }
  all.push_back({1, ShardingStrategy::full_shard, true});
  all.push_back({1, ShardingStrategy::full_shard, false});
  for (const auto prefetch :
       {BackwardPrefetch::none, BackwardPrefetch::backward_pre, BackwardPrefetch::backward_post}) {
    all.push_back({2, ShardingStrategy::full_shard, true, prefetch, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FlatTraining, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace fsdp::testing
