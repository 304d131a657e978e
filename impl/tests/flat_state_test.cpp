// Summon scopes, state dicts of models and optimizers, and what loading refuses.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fsdp/flat/state_dict.hpp"
#include "tests/flat_models.hpp"

namespace fsdp::testing {
namespace {

using flat::FullyShardedDataParallel;
using flat::ShardingStrategy;
using flat::SummonOptions;

TwoLinears make(const Rank& rank, ShardingStrategy strategy, bool use_orig_params, int64_t salt = 0) {
  TwoLinears model;
  initialize(*model, salt);
  const flat::FSDPOptions options{
      .process_group = rank.recorded, .sharding_strategy = strategy, .use_orig_params = use_orig_params};
  FullyShardedDataParallel(model->lin1, options);
  FullyShardedDataParallel(model, options);
  return model;
}

TEST(FlatSummon, WritesBackOrNot) {
  run_ranks(2, [](const Rank& rank) {
    const at::NoGradGuard no_grad;
    for (const auto strategy : kStrategies) {
      for (const bool use_orig_params : {true, false}) {
        auto model = make(rank, strategy, use_orig_params);
        TwoLinears whole;
        initialize(*whole);
        expect_whole_parameters(*model, *whole);
        {
          auto scope = FullyShardedDataParallel::summon_full_params(*model);
          EXPECT_EQ(FullyShardedDataParallel::of(*model).training_state(),
                    flat::TrainingState::summon_full_params);
          for (auto& parameter : model->parameters()) parameter.add_(1);
          scope.leave();
        }
        for (auto& parameter : whole->parameters()) parameter.add_(1);
        expect_whole_parameters(*model, *whole);
        if (strategy == ShardingStrategy::no_shard) continue;
        auto scope = FullyShardedDataParallel::summon_full_params(*model, {.writeback = false});
        for (auto& parameter : model->parameters()) parameter.zero_();
        scope.leave();
        expect_whole_parameters(*model, *whole);
      }
    }
  });
}

TEST(FlatSummon, WithoutRecursionOnlyTheUnitItself) {
  run_ranks(2, [](const Rank& rank) {
    auto model = make(rank, ShardingStrategy::full_shard, true);
    auto scope = FullyShardedDataParallel::summon_full_params(*model, {.recurse = false});
    EXPECT_EQ(model->lin2->slot("weight").sizes(), (std::vector<int64_t>{7, 5}));
    EXPECT_EQ(model->lin1->slot("weight").dim(), 1);
    scope.leave();
    EXPECT_EQ(model->lin2->slot("weight").dim(), 1);
  });
}

TEST(FlatSummon, OnOneRankOnly) {
  run_ranks(2, [](const Rank& rank) {
    auto model = make(rank, ShardingStrategy::full_shard, true);
    auto scope =
        FullyShardedDataParallel::summon_full_params(*model, {.writeback = false, .rank0_only = true});
    EXPECT_EQ(model->lin1->slot("weight").dim(), rank.rank == 0 ? 2 : 1);
    scope.leave();
  });
}

TEST(FlatSummon, GradientsToo) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::no_shard}) {
      auto model = make(rank, strategy, true);
      TwoLinears whole;
      initialize(*whole);
      model(values({2, 5}, rank.rank)).sum().backward();
      add_mean_gradients(*whole, 2, [&](int64_t r) { return whole(values({2, 5}, r)).sum(); });
      auto scope = FullyShardedDataParallel::summon_full_params(*model, {.with_grads = true});
      for (const auto& entry : whole->named_parameters()) {
        const auto gradient = model->named_parameters()[entry.key()].grad();
        ASSERT_TRUE(gradient.defined()) << entry.key();
        EXPECT_TRUE(at::equal(gradient, entry.value().grad())) << entry.key();
        gradient.mul_(2);
        entry.value().grad().mul_(2);
      }
      scope.leave();
      step_exposed(*model, 1.0 / 4);
      sgd_step(*whole, 1.0 / 4);
      expect_whole_parameters(*model, *whole);
    }
  });
}

TEST(FlatSummon, RefusedCombinations) {
  run_ranks(2, [](const Rank& rank) {
    auto model = make(rank, ShardingStrategy::full_shard, true);
    auto flat_model = make(rank, ShardingStrategy::full_shard, false);
    const auto refused = [](auto& m, const SummonOptions& options) {
      return message_of<NotImplemented>([&] { FullyShardedDataParallel::summon_full_params(*m, options); });
    };
    EXPECT_EQ(refused(flat_model, {.with_grads = true}),
              "with_grads=True, use_orig_params=False, offload_to_cpu=False is not supported yet");
    EXPECT_EQ(refused(model, {.rank0_only = true}),
              "writeback=True and rank0_only=True is not supported yet");
    auto scope = FullyShardedDataParallel::summon_full_params(*model);
    auto second_model = FullyShardedDataParallel::summon_full_params(*flat_model);
    EXPECT_EQ(message_of<InvalidState>([&] { FullyShardedDataParallel::summon_full_params(*model); }),
              "Cannot manually unshard parameters when already unsharding parameters");
    second_model.leave();
    scope.leave();
  });
}

TEST(FlatStateDict, RoundTrips) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy : kStrategies) {
      for (const bool use_orig_params : {true, false}) {
        auto model = make(rank, strategy, use_orig_params);
        TwoLinears whole;
        initialize(*whole);
        const auto full = flat::full_state_dict(*model);
        const auto expected = whole->named_parameters();
        ASSERT_EQ(full.size(), expected.size());
        for (size_t i = 0; i < full.size(); ++i) {
          EXPECT_EQ(full[i].first, expected[i].key());
          EXPECT_TRUE(at::equal(full[i].second, expected[i].value()));
        }
        const auto sharded = flat::sharded_state_dict(*model);
        EXPECT_EQ(sharded[0].second.local.size(0), strategy == ShardingStrategy::no_shard ? 5
                                                   : rank.rank == 0                       ? 3
                                                                                          : 2);
        const auto local = flat::local_state_dict(*model);
        EXPECT_EQ(local.flat_parameters.size(), 2U);
        for (int kind = 0; kind < 3; ++kind) {
          auto other = make(rank, strategy, use_orig_params, 5);
          other(values({2, 5}, 0)).sum();  // some strategies keep parameters gathered after this
          if (kind == 0) flat::load_full_state_dict(*other, full);
          if (kind == 1) flat::load_sharded_state_dict(*other, sharded);
          if (kind == 2) flat::load_local_state_dict(*other, local);
          expect_whole_parameters(*other, *whole);
          EXPECT_TRUE(at::equal(other(values({2, 5}, 1)), whole(values({2, 5}, 1))));
        }
      }
    }
  });
}

TEST(FlatStateDict, RankZeroOnly) {
  run_ranks(2, [](const Rank& rank) {
    auto model = make(rank, ShardingStrategy::full_shard, true);
    EXPECT_EQ(flat::full_state_dict(*model, {.rank0_only = true}).size(), rank.rank == 0 ? 4U : 0U);
  });
}

TEST(FlatStateDict, FaultsAreFoundBeforeAnythingChanges) {
  run_ranks(2, [](const Rank& rank) {
    auto model = make(rank, ShardingStrategy::full_shard, true);
    TwoLinears whole;
    initialize(*whole);
    auto state = flat::full_state_dict(*model);
    for (auto& [name, tensor] : state) tensor = tensor + 1;
    state[0].second = at::zeros({5, 6});
    state[2].first = "lin3.weight";
    const auto text = message_of<RuntimeError>([&] { flat::load_full_state_dict(*model, state); });
    for (const char* part :
         {"Missing key(s) in state_dict: ['lin2.weight']", "Unexpected key(s) in state_dict: ['lin3.weight']",
          "size mismatch for lin1.weight"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
    auto sharded = flat::sharded_state_dict(*model);
    sharded[0].second.layout.start = 4;
    EXPECT_NE(message_of<RuntimeError>([&] {
                flat::load_sharded_state_dict(*model, sharded);
              }).find("layout mismatch"),
              std::string::npos);
    auto local = flat::local_state_dict(*model);
    local.flat_parameters[0].second.ranks = 4;
    EXPECT_NE(message_of<RuntimeError>([&] {
                flat::load_local_state_dict(*model, local);
              }).find("of 4, this rank holds shard"),
              std::string::npos);
    expect_whole_parameters(*model, *whole);
  });
}

TEST(FlatOptimizerState, RoundTrips) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy : kStrategies) {
      for (const bool use_orig_params : {true, false}) {
        auto model = make(rank, strategy, use_orig_params);
        // A made-up optimizer: momentum = parameter * 2, and a step counter; nothing for empty pieces.
        const auto keep = [](const at::Tensor& p) { return p.numel() > 0; };
        flat::OptimizerState state;
        for (const auto& parameter : model->parameters()) {
          if (keep(parameter))
            state.push_back(
                {parameter, {{"momentum", parameter.detach() * 2}, {"step", at::scalar_tensor(3.0)}}});
        }
        TwoLinears whole;
        initialize(*whole);
        const auto full = flat::full_optimizer_state(*model, state);
        const auto expected = whole->named_parameters();
        ASSERT_EQ(full.size(), expected.size());
        for (size_t i = 0; i < full.size(); ++i) {
          EXPECT_EQ(full[i].first, expected[i].key());
          EXPECT_TRUE(at::equal(full[i].second.at("momentum"), expected[i].value() * 2)) << full[i].first;
          EXPECT_EQ(full[i].second.at("step").item<double>(), 3);
          EXPECT_EQ(full[i].second.at("step").dim(), 0);
        }
        for (const auto& back :
             {flat::shard_full_optimizer_state(*model, full),
              flat::flatten_sharded_optimizer_state(*model, flat::sharded_optimizer_state(*model, state))}) {
          std::map<const c10::TensorImpl*, std::map<std::string, at::Tensor>> by_tensor;
          for (const auto& [tensor, values] : back) by_tensor[tensor.unsafeGetTensorImpl()] = values;
          for (const auto& [tensor, values] : state) {
            const auto& momentum = by_tensor.at(tensor.unsafeGetTensorImpl()).at("momentum");
            ASSERT_EQ(momentum.sizes(), tensor.sizes());
            // Fillers of the flat parameter have no state.
            EXPECT_TRUE(at::equal(momentum, values.at("momentum")));
          }
        }
        auto foreign = full;
        foreign[0].first = "lin9.weight";
        EXPECT_NE(message_of<RuntimeError>([&] {
                    flat::shard_full_optimizer_state(*model, foreign);
                  }).find("lin9.weight"),
                  std::string::npos);
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
