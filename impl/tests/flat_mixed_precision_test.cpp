// Dtypes of compute, communication and gradients of FSDP1; gradients inside no_sync; which inputs are cast.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/flat_models.hpp"

namespace fsdp::testing {
namespace {

using flat::FullyShardedDataParallel;
using flat::MixedPrecision;
using flat::ShardingStrategy;

/// Copies in low precision compute; their gradients are averaged as FSDP1 does it: divide, sum, divide.
void expected_gradients(TwoLinears& whole, const MixedPrecision& policy,
                        const std::vector<at::Tensor>& by_rank) {
  const auto param = policy.param_dtype.value_or(at::kFloat), reduce = policy.reduce_dtype.value_or(param);
  const auto parameters = whole->parameters();
  std::vector<at::Tensor> sums(parameters.size());
  for (const auto& input : by_rank) {
    TwoLinears low;
    for (size_t i = 0; i < parameters.size(); ++i)
      low->parameters()[i].set_data(parameters[i].detach().to(param));
    low(input.to(param)).sum().backward();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto addend = low->parameters()[i].grad().to(reduce) / 2;
      sums[i] = sums[i].defined() ? sums[i] + addend : addend;
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = sums[i].to(at::kFloat);
}

TEST(FlatMixedPrecision, GradientsAndCollectives) {
  run_ranks(2, [](const Rank& rank) {
    const std::vector<MixedPrecision> policies{{},
                                               {.param_dtype = at::kBFloat16},
                                               {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat},
                                               {.reduce_dtype = at::kBFloat16},
                                               {.param_dtype = at::kHalf, .reduce_dtype = at::kFloat}};
    for (const auto& policy : policies) {
      for (const auto strategy : kStrategies) {
        for (const bool use_orig_params : {true, false}) {
          TwoLinears model, whole;
          initialize(*model);
          initialize(*whole);
          FullyShardedDataParallel(model, {.process_group = rank.recorded,
                                           .sharding_strategy = strategy,
                                           .mixed_precision = policy,
                                           .use_orig_params = use_orig_params});
          rank.trace->take();
          const auto param = policy.param_dtype.value_or(at::kFloat);
          for (int64_t round = 0; round < 2; ++round) {
            const auto input = [&](int64_t r) { return values({2, 5}, r + 3 * round) / 3; };
            const auto output = model(input(rank.rank));
            EXPECT_EQ(output.scalar_type(), param);
            output.sum().backward();
            for (const auto& event : rank.trace->take()) {
              EXPECT_EQ(event.dtype, event.kind == CollectiveKind::all_gather
                                         ? param
                                         : policy.reduce_dtype.value_or(param));
              EXPECT_EQ(event.reduction.op, ReduceOp::sum);
            }
            expected_gradients(whole, policy, {input(0), input(1)});
            for (const auto& parameter : model->parameters()) {
              EXPECT_EQ(parameter.scalar_type(), at::kFloat);
              if (parameter.grad().defined()) {
                EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
              }
            }
            step_exposed(*model, 1.0 / 4);
            sgd_step(*whole, 1.0 / 4);
            expect_whole_parameters(*model, *whole);
            rank.trace->take();
            zero_grad(*model);
          }
        }
      }
    }
  });
}

TEST(FlatMixedPrecision, LowPrecisionGradientsAreKept) {
  run_ranks(2, [](const Rank& rank) {
    for (const bool use_orig_params : {true, false}) {
      TwoLinears model, whole;
      initialize(*model);
      initialize(*whole);
      FullyShardedDataParallel(model, {.process_group = rank.plain,
                                       .mixed_precision = MixedPrecision{.param_dtype = at::kBFloat16,
                                                                         .keep_low_precision_grads = true},
                                       .use_orig_params = use_orig_params});
      for (int64_t round = 0; round < 2; ++round) {
        model(values({2, 5}, rank.rank)).sum().backward();
        for (const auto& parameter : model->parameters()) {
          if (parameter.numel() > 0) {
            EXPECT_EQ(parameter.mutable_grad().scalar_type(), at::kBFloat16);
          }
        }
      }
    }
  });
}

TEST(FlatNoSync, GradientsStayWholeAndInTheDtypeOfCompute) {
  run_ranks(2, [](const Rank& rank) {
    for (const auto strategy : kStrategies) {
      for (const bool use_orig_params : {true, false}) {
        TwoLinears model, whole;
        initialize(*model);
        initialize(*whole);
        FullyShardedDataParallel unit(
            model, {.process_group = rank.recorded,
                    .sharding_strategy = strategy,
                    .mixed_precision = MixedPrecision{.param_dtype = at::kHalf, .reduce_dtype = at::kFloat},
                    .use_orig_params = use_orig_params});
        const auto input = [](int64_t r, int64_t round) { return values({2, 5}, r + 3 * round) / 4; };
        for (int64_t round = 0; round < 2; ++round) {
          auto scope = unit.no_sync();
          rank.trace->take();
          model(input(rank.rank, round)).sum().backward();
          const auto count = collectives(rank);
          EXPECT_EQ(count.scatters + count.all_reduces, 0);
          int64_t seen_gradients = 0;
          for (const auto& parameter : flat::named_original_parameters(*model)) {
            ASSERT_TRUE(parameter.gradient.defined()) << parameter.name;
            EXPECT_EQ(parameter.gradient.scalar_type(), at::kHalf);
            EXPECT_EQ(parameter.gradient.sizes(), at::IntArrayRef(parameter.gradient_piece.shape));
            EXPECT_TRUE(parameter.gradient_piece.whole);
            ++seen_gradients;
          }
          EXPECT_EQ(seen_gradients, 4);
          scope.leave();
        }
        model(input(rank.rank, 2)).sum().backward();
        for (const auto& parameter : model->parameters()) {
          if (parameter.mutable_grad().defined()) {
            EXPECT_EQ(parameter.mutable_grad().scalar_type(), at::kFloat);
          }
        }
        // Values small enough for float16 to hold all three sums exactly.
        add_mean_gradients(*whole, 2, [&](int64_t r) {
          return whole(input(r, 0)).sum() + whole(input(r, 1)).sum() + whole(input(r, 2)).sum();
        });
        for (const auto& parameter : flat::named_original_parameters(*model)) {
          const auto expected = whole->named_parameters()[parameter.name].grad().flatten();
          if (!parameter.gradient.defined()) continue;
          const auto& piece = parameter.gradient_piece;
          EXPECT_TRUE(at::allclose(parameter.gradient.flatten(),
                                   expected.narrow(0, piece.start, piece.length), 2e-3, 2e-2))
              << parameter.name;
        }
      }
    }
  });
}

TEST(FlatNoSync, BelongsToTheRoot) {
  run_ranks(2, [](const Rank& rank) {
    TwoLinears model;
    FullyShardedDataParallel inner(model->lin1, {.process_group = rank.plain});
    FullyShardedDataParallel outer(model, {.process_group = rank.plain});
    outer.no_sync().leave();
    EXPECT_EQ(
        message_of<RuntimeError>([&] { inner.no_sync(); }),
        "`no_sync()` on inner FSDP instances is not supported. Please call `no_sync()` on root FSDP module.");
    EXPECT_EQ(message_of<RuntimeError>([&] { inner.clip_grad_norm_(1.0); }),
              "`clip_grad_norm_()` should only be called on the root FSDP instance");
  });
}

TEST(FlatMixedPrecision, FullPrecisionInEval) {
  run_ranks(2, [](const Rank& rank) {
    for (const bool full : {false, true}) {
      if (full) setenv("FSDP_USE_FULL_PREC_IN_EVAL", "1", 1);
      TwoLinears model, whole;
      initialize(*model);
      initialize(*whole);
      FullyShardedDataParallel unit(model, {.process_group = rank.plain,
                                            .sharding_strategy = ShardingStrategy::shard_grad_op,
                                            .mixed_precision = MixedPrecision{.param_dtype = at::kHalf},
                                            .use_orig_params = true});
      unsetenv("FSDP_USE_FULL_PREC_IN_EVAL");
      const auto input = values({2, 5}, 1);
      EXPECT_EQ(model(input).scalar_type(), at::kHalf);
      FullyShardedDataParallel::summon_full_params(*model).leave();
      model(input).sum().backward();
      zero_grad(*model);
      model->train();
      model(input);
      model->eval();
      const auto output = model(input);
      EXPECT_EQ(output.scalar_type(), full ? at::kFloat : at::kHalf);
      if (full) {
        EXPECT_TRUE(at::equal(output, whole(input)));
        output.sum().backward();
        add_mean_gradients(*whole, 2, [&](int64_t) { return whole(input).sum(); });
        step_exposed(*model, 1.0 / 4);
        sgd_step(*whole, 1.0 / 4);
        expect_whole_parameters(*model, *whole);
      }
    }
  });
}

/// Which inputs are cast: root, c1, c2 of a chain, for the composable form and the wrapper.
TEST(FlatInputs, CastTable) {
  run_ranks(2, [](const Rank& rank) {
    constexpr auto kH = at::kHalf, kF = at::kFloat;
    struct Row {
      bool root_cast, child_cast, root_without_parameters;
      std::vector<at::ScalarType> seen;  // c1, c2; shorter where forward fails before
      bool fails;
    };
    // The last two of each: the error comes in the child whose input stayed float.
    const std::vector<Row> composable{
        {true, true, true, {kH, kH}, false},  {true, true, false, {kF, kH}, false},
        {true, false, true, {kH, kH}, false}, {true, false, false, {kF, kH}, false},
        {false, true, true, {kH, kH}, false}, {false, true, false, {kF, kH}, false},
        {false, false, true, {kF}, true},     {false, false, false, {kF, kF}, true}};
    for (const bool wrapper : {false, true}) {
      for (auto row : composable) {
        // The wrapper does not cast for a nested unit: row (true, false, false) fails there.
        if (wrapper && row.root_cast && !row.child_cast && !row.root_without_parameters) {
          row.seen = {kF, kF};
          row.fails = true;
        }
        Tied chain;
        chain->inner->slot("weight") = chain->inner->weight;
        initialize(*chain);
        const MixedPrecision half{.param_dtype = kH,
                                  .cast_forward_inputs = row.child_cast,
                                  .cast_root_forward_inputs = row.root_cast};
        const auto apply = [&](const std::shared_ptr<torch::nn::Module>& module,
                               std::optional<MixedPrecision> policy) {
          if (wrapper) {
            FullyShardedDataParallel(
                module, {.process_group = rank.plain, .mixed_precision = policy, .use_orig_params = true});
          } else {
            flat::fully_shard(module, {.process_group = rank.plain, .mixed_precision = policy});
          }
        };
        apply(chain->inner.ptr(), half);
        if (row.root_without_parameters) {
          apply(chain->outer.ptr(), half);
          apply(chain.ptr(), half);
        } else {
          apply(chain.ptr(), std::nullopt);
        }
        try {
          chain(at::zeros({2, 4})).sum().backward();
          EXPECT_FALSE(row.fails);
        } catch (const c10::Error& error) {
          EXPECT_TRUE(row.fails) << error.what();
          EXPECT_NE(std::string(error.what()).find("same dtype"), std::string::npos) << error.what();
        }
        std::vector<at::ScalarType> seen = chain->outer->input_dtypes;
        seen.insert(seen.end(), chain->inner->input_dtypes.begin(), chain->inner->input_dtypes.end());
        EXPECT_EQ(seen, row.seen) << wrapper << row.root_cast << row.child_cast
                                  << row.root_without_parameters;
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::testing
