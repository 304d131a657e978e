// Units and what surrounds them: counters, frozen and ignored parameters, groups of one rank, meta device,
// clipping.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "fsdp/comm/dummy_group.hpp"
#include "fsdp/flat/state_dict.hpp"
#include "fsdp/wrap/wrap_policy.hpp"
#include "tests/flat_models.hpp"

namespace fsdp::testing {
namespace {

using flat::FSDPOptions;
using flat::FullyShardedDataParallel;
using flat::ShardingStrategy;
using Dims = std::vector<int64_t>;

TEST(FlatHooks, Counters) {
  run_ranks(2, [](const Rank& rank) {
    for (const bool use_orig_params : {true, false}) {
      for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op}) {
        Mlp model(Dims{4, 4, 4});  // the root has no parameters
        const FSDPOptions options{
            .process_group = rank.plain, .sharding_strategy = strategy, .use_orig_params = use_orig_params};
        for (const auto& layer : model->layers) FullyShardedDataParallel(layer, options);
        FullyShardedDataParallel root(model, options);
        EXPECT_EQ(root.counters().pre_backward_registrations, 0);
        const auto output = model(values({2, 4}, 0));
        EXPECT_EQ(flat::named_units(*model).size(), 3U);
        for (const auto& [name, unit] : flat::named_units(*model)) {
          EXPECT_EQ(unit.counters().pre_backward_registrations, 1) << name;
          EXPECT_EQ(unit.counters().post_backward_registrations, name.empty() ? 0 : 1) << name;
        }
        output.sum().backward();
        for (const auto& [name, unit] : flat::named_units(*model)) {
          if (name.empty()) continue;
          // Forward, and again in backward where original parameters were shown as shards between.
          const bool again = use_orig_params && strategy == ShardingStrategy::full_shard;
          EXPECT_EQ(unit.counters().unsharded_views_as_tensors, again ? 2 : 1) << name;
          EXPECT_EQ(unit.counters().unsharded_views_as_params, 0) << name;
        }
      }
    }
  });
}

TEST(FlatUnits, ParametersInsideForwardHaveNamesAndShapes) {
  run_ranks(2, [](const Rank& rank) {
    struct Looking : SlotLinearImpl {
      using SlotLinearImpl::SlotLinearImpl;
      at::Tensor forward(const at::Tensor& input) {
        EXPECT_EQ(named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
        EXPECT_EQ(parameters()[0].sizes(), (std::vector<int64_t>{5, 5}));
        EXPECT_FALSE(parameters()[0].is_leaf()) << "a part of the graph";
        return SlotLinearImpl::forward(input);
      }
    };
    const auto model = std::make_shared<Hooked<Looking>>(5, 5);
    FullyShardedDataParallel(model, {.process_group = rank.plain, .use_orig_params = true});
    model->forward(at::ones({2, 5})).sum().backward();
    EXPECT_TRUE(model->parameters()[0].is_leaf());
  });
}

TEST(FlatUnits, FrozenParameters) {
  run_ranks(2, [](const Rank& rank) {
    for (const bool all_of_one : {false, true}) {
      TwoLinears model, whole;
      for (auto* m : {&model, &whole}) {
        initialize(**m);
        (*m)->lin1->bias.set_requires_grad(false);
        if (all_of_one) (*m)->lin1->weight.set_requires_grad(false);
      }
      const FSDPOptions options{.process_group = rank.recorded, .use_orig_params = true};
      FullyShardedDataParallel(model->lin1, options);
      FullyShardedDataParallel(model, options);
      rank.trace->take();
      auto input = values({2, 5}, rank.rank);
      input.set_requires_grad(true);
      model(input).sum().backward();
      EXPECT_EQ(collectives(rank).scatters, all_of_one ? 1 : 2);
      add_mean_gradients(*whole, 2, [&](int64_t r) {
        return whole(values({2, 5}, r).requires_grad_(true)).sum();
      });
      EXPECT_FALSE(model->lin1->bias.mutable_grad().defined());
      EXPECT_EQ(model->lin1->slot("weight").dim(), 1) << "resharded";
      step_exposed(*model, 1.0 / 4);
      sgd_step(*whole, 1.0 / 4);
      expect_whole_parameters(*model, *whole);
    }
  });
}

/// The frozen layer runs first, so its backward, which needs its weight, comes after all gradients are there.
TEST(FlatUnits, FrozenBelowTrainableInOneUnit) {
  run_ranks(2, [](const Rank& rank) {
    TwoLinears model, whole;
    for (auto* m : {&model, &whole}) {
      initialize(**m);
      for (auto& parameter : (*m)->lin1->parameters()) parameter.set_requires_grad(false);
    }
    FullyShardedDataParallel(model->lin1, {.process_group = rank.plain, .use_orig_params = true});
    FullyShardedDataParallel(model, {.process_group = rank.plain, .use_orig_params = true});
    TwoLinears nested, nested_whole;
    initialize(*nested);
    initialize(*nested_whole);
    for (auto* m : {&nested, &nested_whole}) {
      for (auto& parameter : (*m)->lin1->parameters()) parameter.set_requires_grad(false);
    }
    FullyShardedDataParallel(nested, {.process_group = rank.plain, .use_orig_params = true});
    for (const auto& [m, w] : {std::pair(model, whole), std::pair(nested, nested_whole)}) {
      auto module = m, reference = w;
      auto input = values({2, 5}, rank.rank).requires_grad_(true),
           same = values({2, 5}, rank.rank).requires_grad_(true);
      module(input).sum().backward();
      reference(same).sum().backward();
      EXPECT_TRUE(at::equal(input.grad(), same.grad()));
      EXPECT_FALSE(module->lin1->slot("weight").mutable_grad().defined());
      zero_grad(*reference);
      add_mean_gradients(*reference, 2, [&](int64_t r) { return reference(values({2, 5}, r)).sum(); });
      step_exposed(*module, 1.0 / 4);
      sgd_step(*reference, 1.0 / 4);
      expect_whole_parameters(*module, *reference);
    }
  });
}

TEST(FlatUnits, FrozenAfterWrapping) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::no_shard}) {
      TwoLinears model, whole;
      initialize(*model);
      initialize(*whole);
      FullyShardedDataParallel(
          model, {.process_group = rank.plain, .sharding_strategy = strategy, .use_orig_params = true});
      for (auto* m : {&model, &whole}) {
        for (const auto& entry : (*m)->named_parameters()) {
          if (entry.key().find("bias") != std::string::npos) entry.value().set_requires_grad(false);
        }
      }
      for (int64_t round = 0; round < 2; ++round) {
        model(values({2, 5}, rank.rank + round)).sum().backward();
        add_mean_gradients(*whole, 2, [&](int64_t r) { return whole(values({2, 5}, r + round)).sum(); });
        step_exposed(*model, 1.0 / 4);
        sgd_step(*whole, 1.0 / 4);
        expect_whole_parameters(*model, *whole);
        zero_grad(*model);
        zero_grad(*whole);
      }
    }
  });
}

TEST(FlatUnits, IgnoredStaysOutside) {
  run_ranks(2, [](const Rank& rank) {
    for (const bool use_orig_params : {true, false}) {
      TwoLinears model, whole;
      initialize(*model);
      initialize(*whole);
      FullyShardedDataParallel(model, {.process_group = rank.recorded,
                                       .ignored_parameters = {model->lin2->bias},
                                       .use_orig_params = use_orig_params});
      EXPECT_EQ(flat::flat_parameter_info(*model).members.size(), 3U);
      EXPECT_EQ(seen(*model, "lin2.bias").managed, false);
      std::vector<std::string> names;
      for (const auto& parameter : flat::named_original_parameters(*model)) names.push_back(parameter.name);
      EXPECT_EQ(names, whole->named_parameters().keys()) << "registration order";
      model(values({2, 5}, rank.rank)).sum().backward();
      EXPECT_EQ(model->lin2->bias.grad().sizes(), (std::vector<int64_t>{7}));
      TwoLinears by_module;
      FullyShardedDataParallel(by_module, {.process_group = rank.plain,
                                           .ignored_modules = flat::ModuleList{by_module->lin1.ptr()}});
      EXPECT_EQ(flat::flat_parameter_info(*by_module).members.size(), 2U);
      EXPECT_EQ(message_of<InvalidArgument>([&] {
                  TwoLinears both;
                  FullyShardedDataParallel(both, {.process_group = rank.plain,
                                                  .ignored_modules = flat::ModuleList{},
                                                  .ignored_parameters = {both->lin1->bias}});
                }),
                "Cannot pass both ignored_modules and ignored_states at the same time. Please just pass "
                "ignored_states.");
    }
  });
}

TEST(FlatUnits, GroupsOfOneRank) {
  run_ranks(2, [](const Rank& rank) {
    TwoLinears model, whole;
    initialize(*model);
    initialize(*whole);
    FullyShardedDataParallel expert(
        model->lin1, {.process_group = rank.recorded->subgroup({rank.rank}), .use_orig_params = true});
    FullyShardedDataParallel(model, {.process_group = rank.recorded, .use_orig_params = true});
    EXPECT_EQ(expert.sharding_strategy(), ShardingStrategy::no_shard);
    EXPECT_EQ(expert.world_size(), 1);
    rank.trace->take();
    model(values({2, 5}, rank.rank)).sum().backward();
    EXPECT_EQ(collectives(rank), (CollectiveCount{1, 0, 1, 1})) << "the expert's all-reduce is among itself";
    whole(values({2, 5}, rank.rank)).sum().backward();
    EXPECT_TRUE(at::equal(model->lin1->slot("weight").grad(), whole->lin1->slot("weight").grad())) << "local";
  });
}

TEST(FlatUnits, SynchronisedFromRankZero) {
  run_ranks(2, [](const Rank& rank) {
    TwoLinears model, whole;
    initialize(*model, 10 * rank.rank);
    initialize(*whole);
    FullyShardedDataParallel(
        model, {.process_group = rank.plain, .sync_module_states = true, .use_orig_params = true});
    expect_whole_parameters(*model, *whole);
  });
}

TEST(FlatUnits, FromTheMetaDevice) {
  run_ranks(2, [](const Rank& rank) {
    for (const bool use_orig_params : {true, false}) {
      TwoLinears model, whole;
      for (const auto& parameter : model->parameters()) {
        const auto meta = at::empty(parameter.sizes(), at::TensorOptions(at::kMeta));
        parameter.unsafeGetTensorImpl()->shallow_copy_from(meta.getIntrusivePtr());
      }
      for (auto& parameter : whole->parameters()) parameter.detach().fill_(0.5);
      FullyShardedDataParallel(model, {.process_group = rank.plain,
                                       .param_init_fn =
                                           [](torch::nn::Module& module) {
                                             for (auto& parameter : module.parameters(/*recurse=*/false))
                                               parameter.detach().fill_(0.5);
                                           },
                                       .use_orig_params = use_orig_params});
      expect_whole_parameters(*model, *whole);
    }
  });
}

TEST(FlatUnits, ClippedByTheNormOfAll) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy : {ShardingStrategy::full_shard, ShardingStrategy::no_shard}) {
      for (const double norm_type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
        TwoLinears model, whole;
        initialize(*model);
        initialize(*whole);
        FullyShardedDataParallel unit(
            model, {.process_group = rank.plain, .sharding_strategy = strategy, .use_orig_params = true});
        model(values({2, 5}, rank.rank)).sum().backward();
        add_mean_gradients(*whole, 2, [&](int64_t r) { return whole(values({2, 5}, r)).sum(); });
        std::vector<at::Tensor> gradients;
        for (const auto& parameter : whole->parameters()) gradients.push_back(parameter.grad().flatten());
        const auto expected = at::linalg_vector_norm(at::cat(gradients), norm_type);
        const auto total = unit.clip_grad_norm_(1.0, norm_type);
        EXPECT_TRUE(at::allclose(total, expected));
        for (const auto& parameter : flat::named_original_parameters(*model)) {
          if (!parameter.gradient.defined()) continue;
          const auto& piece = parameter.gradient_piece;
          const auto mean =
              whole->named_parameters()[parameter.name].grad().flatten().narrow(0, piece.start, piece.length);
          EXPECT_TRUE(at::allclose(parameter.gradient.flatten(), mean / (expected + 1e-6)));
        }
      }
    }
  });
}

TEST(FlatUnits, OrderOfExecutionIsCompared) {
  run_ranks(2, [](const Rank& rank) {
    struct Either : torch::nn::Module {
      explicit Either(int64_t first_rank) : first(first_rank) {
        a = register_module("a", SlotLinear(4, 4));
        b = register_module("b", SlotLinear(4, 4));
      }
      at::Tensor forward(const at::Tensor& input) { return first == 0 ? b(a(input)) : a(b(input)); }
      SlotLinear a{nullptr}, b{nullptr};
      int64_t first;
    };
    setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL", 1);
    const auto model = std::make_shared<Hooked<Either>>(rank.rank);
    const FSDPOptions options{.process_group = rank.plain, .use_orig_params = true};
    for (const auto& layer : {model->a, model->b}) FullyShardedDataParallel(layer, options);
    FullyShardedDataParallel root(model, options);
    EXPECT_EQ(message_of<RuntimeError>([&] {
                model->forward(at::ones({2, 4}));
              }),
              "Forward order differs across ranks: rank 0 is all-gathering parameters for ['a.weight', "
              "'a.bias'] while "
              "rank 1 is all-gathering parameters for ['b.weight', 'b.bias']");
    unsetenv("TORCH_DISTRIBUTED_DEBUG");
  });
}

TEST(FlatUnits, ExceptionsLeaveUsableUnits) {
  run_ranks(2, [](const Rank& rank) {
    TwoLinears model, whole;
    initialize(*model);
    initialize(*whole);
    FullyShardedDataParallel(model, {.process_group = rank.plain, .use_orig_params = true});
    EXPECT_THROW(model(at::ones({2, 6})), c10::Error);
    auto output = model(values({2, 5}, rank.rank));
    output.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("in backward"); });
    EXPECT_THROW(output.sum().backward(), std::runtime_error);
    model(values({2, 5}, rank.rank)).sum().backward();
    add_mean_gradients(*whole, 2, [&](int64_t r) { return whole(values({2, 5}, r)).sum(); });
    step_exposed(*model, 1.0 / 4);
    sgd_step(*whole, 1.0 / 4);
    expect_whole_parameters(*model, *whole);
  });
}

}  // namespace
}  // namespace fsdp::testing
