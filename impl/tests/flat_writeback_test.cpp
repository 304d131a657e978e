// What user code does to parameters and gradients between passes reaches the flat parameter, or is refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/flat_models.hpp"

namespace fsdp::testing {
namespace {

using flat::FullyShardedDataParallel;
using flat::ShardingStrategy;

struct Pair {
  TwoLinears model, whole;
  Pair() {
    initialize(*model);
    initialize(*whole);
  }
};

at::Tensor twos_like(const at::Tensor& tensor) {
  return at::full_like(tensor.detach(), 2.0);
}

void change(SlotLinear& layer, bool data) {
  auto& slot = layer->slot("weight");
  if (data) {
    slot.set_data(twos_like(slot));
  } else {
    slot = twos_like(slot).set_requires_grad(true);
  }
}

TEST(FlatWriteback, Parameters) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::no_shard}) {
      for (const bool first : {true, false}) {
        for (const bool data : {true, false}) {
          Pair pair;
          FullyShardedDataParallel(
              pair.model,
              {.process_group = rank.plain, .sharding_strategy = strategy, .use_orig_params = true});
          for (auto* model : {&pair.model, &pair.whole})
            change(first ? (*model)->lin1 : (*model)->lin2, data);
          expect_whole_parameters(*pair.model, *pair.whole);
          // And the new object trains.
          pair.model(values({2, 5}, rank.rank)).sum().backward();
          add_mean_gradients(*pair.whole, 2, [&](int64_t r) { return pair.whole(values({2, 5}, r)).sum(); });
          for (auto* model : {&pair.model, &pair.whole}) step_exposed(**model, 1.0 / 4);
          expect_whole_parameters(*pair.model, *pair.whole);
        }
      }
    }
  });
}

TEST(FlatWriteback, Gradients) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy :
         {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op, ShardingStrategy::no_shard}) {
      for (const bool first : {true, false}) {
        for (const char* how : {"replace", "data", "none"}) {
          Pair pair;
          FullyShardedDataParallel(
              pair.model,
              {.process_group = rank.plain, .sharding_strategy = strategy, .use_orig_params = true});
          for (int64_t round = 0; round < 2; ++round) {
            pair.model(values({2, 5}, 2 * round + rank.rank)).sum().backward();
            add_mean_gradients(*pair.whole, 2, [&](int64_t r) {
              return pair.whole(values({2, 5}, 2 * round + r)).sum();
            });
            if (round == 0) {
              for (auto* model : {&pair.model, &pair.whole}) {
                auto& slot = (first ? (*model)->lin1 : (*model)->lin2)->slot("weight");
                auto& gradient = slot.mutable_grad();
                if (std::string(how) == "none") gradient.reset();
                if (std::string(how) == "replace" && slot.numel() > 0) gradient = twos_like(slot);
                if (std::string(how) == "data" && gradient.defined()) gradient.set_data(twos_like(gradient));
              }
            }
            for (auto* model : {&pair.model, &pair.whole}) step_exposed(**model, 1.0 / 4);
            expect_whole_parameters(*pair.model, *pair.whole);
          }
        }
      }
    }
  });
}

TEST(FlatWriteback, ShapeMismatchIsRefusedOnTheRankThatHasThePart) {
  run_ranks(2, [](const Rank& rank) {
    Pair pair;
    FullyShardedDataParallel(pair.model, {.process_group = rank.recorded, .use_orig_params = true});
    auto& slot = (rank.rank == 0 ? pair.model->lin1 : pair.model->lin2)->slot("weight");
    slot.set_data(at::ones({slot.numel() + 1}));
    rank.trace->take();
    EXPECT_EQ(message_of<RuntimeError>([&] { FullyShardedDataParallel::summon_full_params(*pair.model); }),
              rank.rank == 0
                  ? "Cannot writeback when the parameter shape changes\nExpects torch.Size([25]) but got "
                    "torch.Size([26])"
                  : "Cannot writeback when the parameter shape changes\nExpects torch.Size([31]) but got "
                    "torch.Size([32])");
    EXPECT_TRUE(rank.trace->take().empty()) << "before any collective";
    EXPECT_EQ(FullyShardedDataParallel::of(*pair.model).training_state(), flat::TrainingState::idle);
  });
}

TEST(FlatWriteback, BetweenForwardAndBackward) {
  run_ranks(2, [](const Rank& rank) {
    for (const bool data : {true, false}) {
      Pair pair;
      for (auto& layer : {pair.model->lin1, pair.model->lin2}) {
        FullyShardedDataParallel(layer, {.process_group = rank.plain,
                                         .sharding_strategy = ShardingStrategy::shard_grad_op,
                                         .use_orig_params = true});
      }
      FullyShardedDataParallel(pair.model, {.process_group = rank.plain,
                                            .sharding_strategy = ShardingStrategy::shard_grad_op,
                                            .use_orig_params = true});
      const auto loss = pair.model(values({2, 5}, 0)).sum();
      auto& slot = pair.model->lin1->slot("weight");
      EXPECT_EQ(slot.sizes(), (std::vector<int64_t>{5, 5})) << "still whole";
      if (data) {
        slot.set_data(slot.detach().clone());
      } else {
        slot = slot.detach().clone().set_requires_grad(true);
      }
      EXPECT_EQ(message_of<InvalidState>([&] { loss.backward(); }),
                "FSDP does not support changing the parameters between forward and backward for "
                "HandleShardingStrategy.SHARD_GRAD_OP");
    }
  });
}

TEST(FlatWriteback, SkippedByTheEnvironmentAtConstruction) {
  run_ranks(2, [](const Rank& rank) {
    Pair pair;
    setenv("FSDP_SKIP_WRITEBACK_CHECK", "1", 1);
    FullyShardedDataParallel(pair.model, {.process_group = rank.plain, .use_orig_params = true});
    unsetenv("FSDP_SKIP_WRITEBACK_CHECK");
    change(pair.model->lin1, true);
    change(pair.model->lin2, true);
    expect_whole_parameters(*pair.model, *pair.whole);
  });
}

TEST(FlatWriteback, SharedParameterReplaced) {
  run_ranks(2, [](const Rank& rank) {
    Tied model;
    initialize(*model);
    FullyShardedDataParallel(model, {.process_group = rank.plain, .use_orig_params = true});
    EXPECT_EQ(flat::flat_parameter_info(*model).members.size(), 3U) << "the shared weight once, two biases";
    auto& slot = model->inner->slot("weight");
    slot = slot.detach().clone();
    EXPECT_EQ(message_of<NotImplemented>([&] {
                model(at::ones({2, 4}));
              }),
              "Changing shared parameters is not supported yet");
  });
}

}  // namespace
}  // namespace fsdp::testing
