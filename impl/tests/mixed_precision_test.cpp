// Dtypes of compute, communication and gradients, and that accumulation happens in the right one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using Dims = std::vector<int64_t>;

/// An unsharded bf16 copy computes; its gradients are averaged in `reduce_dtype`; fp32 keeps the weights.
std::vector<at::Tensor> expected_gradients(const Mlp& whole, const Rank& rank,
                                           const std::vector<at::Tensor>& micro_batches,
                                           at::ScalarType param_dtype, at::ScalarType reduce_dtype,
                                           at::ScalarType accumulate_dtype) {
  std::vector<at::Tensor> mean;
  for (int64_t r = 0; r < rank.world; ++r) {
    std::vector<at::Tensor> own;
    for (const auto& batch : micro_batches) {
      Mlp low(Dims{8, 6, 4}, true);
      for (size_t i = 0; i < low->parameters().size(); ++i) {
        low->parameters()[i].set_data(whole->parameters()[i].detach().to(param_dtype));
      }
      low((batch + r).to(param_dtype)).sum().backward();
      for (size_t i = 0; i < low->parameters().size(); ++i) {
        const auto gradient = low->parameters()[i].grad().to(accumulate_dtype);
        if (own.size() <= i) {
          own.push_back(gradient);
        } else {
          own[i] = own[i] + gradient;
        }
      }
    }
    for (size_t i = 0; i < own.size(); ++i) {
      const auto addend = own[i].to(reduce_dtype);
      if (mean.size() <= i) {
        mean.push_back(addend);
      } else {
        mean[i] = mean[i] + addend;
      }
    }
  }
  for (auto& gradient : mean) gradient = gradient.div(rank.world).to(at::kFloat);
  return mean;
}

void expect_gradients(const Mlp& model, const std::vector<at::Tensor>& expected) {
  const auto actual = full_values(*model, true);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(actual[i], expected[i]))
        << i << " differs by " << (actual[i] - expected[i]).abs().max().item<float>();
  }
}

struct Policy {
  std::optional<at::ScalarType> param, reduce;
};

class MixedPrecision : public ::testing::TestWithParam<Policy> {};

TEST_P(MixedPrecision, GradientsAndCollectives) {
  const auto [param, reduce] = GetParam();
  run_ranks(2, [param = param, reduce = reduce](const Rank& rank) {
    Mlp model(Dims{8, 6, 4}, true), whole(Dims{8, 6, 4}, true);
    initialize(*model);
    initialize(*whole);
    shard(model, {.mesh = rank.mesh(), .mp_policy = {.param_dtype = param, .reduce_dtype = reduce}});
    const auto param_dtype = param.value_or(at::kFloat), reduce_dtype = reduce.value_or(param_dtype);
    const auto batch = values({4, 8}, 3);
    const auto output = model(batch + rank.rank);
    EXPECT_EQ(output.scalar_type(), param_dtype);
    output.sum().backward();
    expect_gradients(model, expected_gradients(whole, rank, {batch}, param_dtype, reduce_dtype, param_dtype));
    int64_t gathers = 0, reductions = 0;
    for (const auto& event : rank.trace->take()) {
      if (event.kind == CollectiveKind::all_gather) {
        if (event.site.phase == Phase::state_dict) continue;
        ++gathers;
        EXPECT_EQ(event.dtype, param_dtype);
      } else {
        ++reductions;
        EXPECT_EQ(event.dtype, reduce_dtype);
        EXPECT_EQ(event.reduction.op, reduce_dtype == at::kHalf ? ReduceOp::sum : ReduceOp::avg);
      }
    }
    EXPECT_EQ(gathers, 5);
    EXPECT_EQ(reductions, 3);
  });
}

INSTANTIATE_TEST_SUITE_P(Policies, MixedPrecision,
                         ::testing::Values(Policy{}, Policy{at::kBFloat16, {}},
                                           Policy{at::kBFloat16, at::kFloat}, Policy{{}, at::kBFloat16},
                                           Policy{at::kBFloat16, at::kBFloat16},
                                           Policy{at::kHalf, at::kFloat}));

class Accumulation : public ::testing::TestWithParam<bool> {};

TEST_P(Accumulation, WaitsInTheReduceDtype) {
  const auto reshard_after_backward = GetParam();
  run_ranks(2, [=](const Rank& rank) {
    for (const auto reduce : {at::kFloat, at::kBFloat16}) {
      Mlp model(Dims{8, 6, 4}, true), whole(Dims{8, 6, 4}, true);
      initialize(*model);
      initialize(*whole);
      shard(model,
            {.mesh = rank.mesh(), .mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = reduce}});
      auto root = FSDPModule::of(*model);
      std::vector<at::Tensor> batches;
      for (int64_t i = 0; i < 4; ++i) {
        // Not multiples of a coarse grid: rounding to bf16 in between would show.
        batches.push_back(values({2, 8}, i) / 3);
        const bool last = i == 3;
        root.set_requires_gradient_sync(last);
        root.set_reshard_after_backward(last || reshard_after_backward);
        rank.trace->take();
        model(batches.back() + rank.rank).sum().backward();
        int64_t reductions = 0;
        for (const auto& event : rank.trace->take()) {
          if (event.kind != CollectiveKind::reduce_scatter) continue;
          ++reductions;
          EXPECT_EQ(event.dtype, reduce);
        }
        EXPECT_EQ(reductions, last ? 3 : 0);
        for (const auto& parameter : model->parameters()) EXPECT_EQ(parameter.mutable_grad().defined(), last);
      }
      expect_gradients(model, expected_gradients(whole, rank, batches, at::kBFloat16, reduce, reduce));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(ReshardAfterBackward, Accumulation, ::testing::Bool());

TEST(AccumulationOverSyncs, AddsToTheShardedGradient) {
  run_ranks(2, [](const Rank& rank) {
    Mlp model(Dims{8, 6, 4}, true), whole(Dims{8, 6, 4}, true);
    initialize(*model);
    initialize(*whole);
    shard(model, {.mesh = rank.mesh()});
    std::vector<at::Tensor> sum;
    for (int64_t i = 0; i < 2; ++i) {
      const auto batch = values({2, 8}, i);
      model(batch + rank.rank).sum().backward();
      const auto part = expected_gradients(whole, rank, {batch}, at::kFloat, at::kFloat, at::kFloat);
      for (size_t k = 0; k < part.size(); ++k) {
        if (i == 0) {
          sum.push_back(part[k]);
        } else {
          sum[k] = sum[k] + part[k];
        }
      }
    }
    expect_gradients(model, sum);
  });
}

TEST(Casts, InputsAndOutputs) {
  run_ranks(2, [](const Rank& rank) {
    Linear cast(4, 4), uncast(4, 4), output(4, 4);
    fully_shard(cast, {.mesh = rank.mesh(), .mp_policy = {.param_dtype = at::kHalf}});
    EXPECT_EQ(cast(at::ones({2, 4})).scalar_type(), at::kHalf);
    fully_shard(uncast,
                {.mesh = rank.mesh(), .mp_policy = {.param_dtype = at::kHalf, .cast_forward_inputs = false}});
    EXPECT_THROW(uncast(at::ones({2, 4})), c10::Error) << "a half weight meets a float input";
    fully_shard(output,
                {.mesh = rank.mesh(), .mp_policy = {.param_dtype = at::kHalf, .output_dtype = at::kFloat}});
    auto result = output(at::ones({2, 4}));
    EXPECT_EQ(result.scalar_type(), at::kFloat);
    result.sum().backward();
    EXPECT_EQ(output->weight.grad().scalar_type(), at::kFloat);
  });
}

TEST(Casts, AfterTheModelWasCast) {
  run_ranks(2, [](const Rank& rank) {
    Linear layer(4, 5);
    initialize(*layer);
    fully_shard(layer, {.mesh = rank.mesh(),
                        .mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}});
    layer->to(at::kBFloat16);
    layer(at::ones({2, 4})).sum().backward();
    EXPECT_EQ(layer->weight.scalar_type(), at::kBFloat16);
    EXPECT_EQ(layer->weight.grad().scalar_type(), at::kBFloat16);
    const auto events = rank.trace->take();
    EXPECT_EQ(events.at(0).dtype, at::kBFloat16);
    EXPECT_EQ(events.at(0).in_numel, 3 * 4 + 3) << "padding survived";
    EXPECT_EQ(events.back().dtype, at::kFloat);
  });
}

TEST(Casts, FrozenParametersOfAnotherDtype) {
  run_ranks(2, [](const Rank& rank) {
    Linear layer(4, 5), reference(4, 5);
    for (auto* each : {&layer, &reference}) {
      initialize(**each);
      (*each)->bias.set_data((*each)->bias.to(at::kDouble));
      (*each)->bias.set_requires_grad(false);
    }
    fully_shard(layer, {.mesh = rank.mesh()});
    auto unit = FSDPModule::of(*layer);
    unit.unshard();
    EXPECT_TRUE(at::equal(layer->weight.detach(), reference->weight.detach()));
    EXPECT_TRUE(at::equal(layer->bias.detach(), reference->bias.detach()));
    EXPECT_EQ(rank.trace->take().at(0).dtype, at::kByte);
    unit.reshard();
    EXPECT_EQ(layer->bias.scalar_type(), at::kDouble);
  });
}

}  // namespace
}  // namespace fsdp::testing
