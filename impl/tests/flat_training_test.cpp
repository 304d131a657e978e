// FSDP1 on Gloo against the same model, unsharded, with averaged gradients: equal to the last bit, as the
// data are multiples of a power of two and few steps are taken.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/flat_models.hpp"

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

struct Case {
  int64_t world;
  ShardingStrategy strategy;
  bool use_orig_params;
  BackwardPrefetch prefetch = BackwardPrefetch::backward_pre;
  bool forward_prefetch = false;
  bool cpu_offload = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << "world " << c.world << " " << flat::python_name(c.strategy)
       << (c.use_orig_params ? " orig" : " flat") << " prefetch " << static_cast<int>(c.prefetch)
       << (c.forward_prefetch ? " forward" : "") << (c.cpu_offload ? " offload" : "");
}

class FlatTraining : public ::testing::TestWithParam<Case> {};

TEST_P(FlatTraining, EqualsMeanOfGradients) {
  const auto c = GetParam();
  run_ranks(c.world, [&c](const Rank& rank) {
    Mlp model(Dims{8, 6, 4}, true), whole(Dims{8, 6, 4}, true);
    initialize(*model);
    initialize(*whole);
    FSDPOptions options{.sharding_strategy = c.strategy,
                        .cpu_offload = c.cpu_offload,
                        .backward_prefetch = c.prefetch,
                        .forward_prefetch = c.forward_prefetch,
                        .use_orig_params = c.use_orig_params};
    if (flat::is_hybrid(c.strategy)) {
      options.device_mesh = DeviceMesh(rank.recorded, {2, c.world / 2}, {"replicate", "shard"});
    } else {
      options.process_group = rank.recorded;
    }
    wrap(model, options);
    const bool sharded = c.strategy != ShardingStrategy::no_shard && c.world > 1;
    const bool frees = sharded && (c.strategy == ShardingStrategy::full_shard ||
                                   c.strategy == ShardingStrategy::hybrid_shard);
    // Two sums of two round differently from one of four as soon as the data need all their bits.
    for (int64_t number = 0; number < (flat::is_hybrid(c.strategy) ? 2 : 3); ++number) {
      const auto input = [&](int64_t r) { return values({4, 8}, 100 * number + r); };
      rank.trace->take();
      model(input(rank.rank)).sum().backward();
      const CollectiveCount expected{sharded ? 3 : 0, frees ? 2 : 0, sharded ? 3 : 0,
                                     !sharded || flat::is_hybrid(c.strategy) ? 3 : 0};
      EXPECT_EQ(collectives(rank), expected);
      average_gradients(whole, c.world, [&](int64_t r) { return whole(input(r)).sum(); });
      step_exposed(*model, 1.0 / 8);
      sgd_step(*whole, 1.0 / 8);
      expect_whole_parameters(*model, *whole);
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
  for (const auto strategy : {ShardingStrategy::hybrid_shard, ShardingStrategy::hybrid_shard_zero2}) {
    all.push_back({4, strategy, true});
    all.push_back({4, strategy, false});
  }
  all.push_back({1, ShardingStrategy::full_shard, true});
  all.push_back({1, ShardingStrategy::full_shard, false});
  all.push_back({2, ShardingStrategy::full_shard, true, BackwardPrefetch::backward_pre, false, true});
  for (const auto prefetch :
       {BackwardPrefetch::none, BackwardPrefetch::backward_pre, BackwardPrefetch::backward_post}) {
    all.push_back({2, ShardingStrategy::full_shard, true, prefetch, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FlatTraining, ::testing::ValuesIn(cases()));

/// Units in the order of their gathers in backward, and whether a gather came before the unit's predecessor
/// reduced.
std::vector<std::string> backward_events(const Rank& rank, BackwardPrefetch prefetch) {
  Mlp model(Dims{4, 4, 4, 4}, true);
  initialize(*model);
  wrap(model, {.process_group = rank.recorded, .backward_prefetch = prefetch, .use_orig_params = true});
  model(values({2, 4}, rank.rank)).sum().backward();
  std::vector<std::string> events;
  for (const auto& event : rank.trace->take()) {
    if (event.site.phase != Phase::backward) continue;
    events.push_back((event.kind == CollectiveKind::all_gather ? "gather " : "reduce ") + event.site.unit);
  }
  return events;
}

TEST(FlatPrefetch, ChangesTheOrderOnly) {
  run_ranks(2, [](const Rank& rank) {
    using Events = std::vector<std::string>;
    // The root's own scale reduces first: it is the last thing of forward.
    EXPECT_EQ(backward_events(rank, BackwardPrefetch::none),
              (Events{"reduce ", "gather layer2", "reduce layer2", "gather layer1", "reduce layer1",
                      "gather layer0", "reduce layer0"}));
    EXPECT_EQ(backward_events(rank, BackwardPrefetch::backward_pre),
              (Events{"gather layer2", "reduce ", "gather layer1", "reduce layer2", "gather layer0",
                      "reduce layer1", "reduce layer0"}));
    EXPECT_EQ(backward_events(rank, BackwardPrefetch::backward_post),
              (Events{"gather layer2", "reduce ", "gather layer1", "reduce layer2", "gather layer0",
                      "reduce layer1", "reduce layer0"}));
  });
}

TEST(FlatTraining, SeveralForwardsOneBackward) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy :
         {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op, ShardingStrategy::no_shard}) {
      Mlp model(Dims{8, 6, 4}, true), whole(Dims{8, 6, 4}, true);
      initialize(*model);
      initialize(*whole);
      wrap(model, {.process_group = rank.recorded, .sharding_strategy = strategy, .use_orig_params = true});
      const auto run = [](Mlp& m, int64_t r) {
        return (m(values({4, 8}, r)) + m(values({4, 8}, r + 7))).sum();
      };
      rank.trace->take();
      run(model, rank.rank).backward();
      const auto count = collectives(rank);
      EXPECT_EQ(count.scatters + count.all_reduces, 3) << "one reduction for both";
      average_gradients(whole, 2, [&](int64_t r) { return run(whole, r); });
      step_exposed(*model, 1.0 / 8);
      sgd_step(*whole, 1.0 / 8);
      expect_whole_parameters(*model, *whole);
    }
  });
}

TEST(FlatTraining, GradientsAccumulateOutsideNoSync) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::no_shard}) {
      for (const bool use_orig_params : {true, false}) {
        Mlp model(Dims{8, 6, 4}, true), whole(Dims{8, 6, 4}, true);
        initialize(*model);
        initialize(*whole);
        wrap(model, {.process_group = rank.recorded,
                     .sharding_strategy = strategy,
                     .use_orig_params = use_orig_params});
        for (int64_t i = 0; i < 2; ++i) model(values({4, 8}, rank.rank + 2 * i)).sum().backward();
        average_gradients(whole, 2, [&](int64_t r) {
          return whole(values({4, 8}, r)).sum() + whole(values({4, 8}, r + 2)).sum();
        });
        step_exposed(*model, 1.0 / 8);
        sgd_step(*whole, 1.0 / 8);
        expect_whole_parameters(*model, *whole);
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
