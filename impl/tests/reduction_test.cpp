// The plan of a reduction for every case of the table, and reductions that are not the plain mean.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "per_parameter/collectives.hpp"
#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using Dims = std::vector<int64_t>;

struct Row {
  at::ScalarType dtype;
  int64_t ranks, replicas;
  std::optional<double> factor;
  bool force_sum;
  std::optional<double> pre;
  ReduceOp scatter, reduce;
  std::optional<double> post;
};

TEST(ReducePlanTest, EveryRow) {
  const std::optional<double> none;
  const auto sum = ReduceOp::sum, avg = ReduceOp::avg, premul = ReduceOp::premul_sum;
  const std::vector<Row> table = {
      {at::kFloat, 4, 1, none, false, none, avg, avg, none},
      {at::kFloat, 1, 1, none, false, none, sum, sum, none},
      {at::kBFloat16, 2, 2, none, false, none, avg, avg, none},
      {at::kFloat, 4, 1, 4.0, false, none, avg, sum, none},
      {at::kFloat, 4, 1, 3.0, false, none, premul, sum, none},
      {at::kFloat, 4, 1, none, true, none, sum, sum, 4.0},
      {at::kFloat, 2, 2, none, true, none, sum, sum, 4.0},
      {at::kBFloat16, 4, 1, 3.0, true, none, sum, sum, 3.0},
      {at::kHalf, 2, 1, none, false, 2.0, sum, sum, 1.0},
      {at::kHalf, 3, 1, none, false, 2.0, sum, sum, 1.5},
      {at::kHalf, 4, 1, none, false, 2.0, sum, sum, 2.0},
      {at::kHalf, 4, 2, none, false, 4.0, sum, sum, 2.0},
      {at::kDouble, 2, 1, none, true, 2.0, sum, sum, 1.0},
  };
  for (size_t i = 0; i < table.size(); ++i) {
    const auto& row = table[i];
    const auto plan = reduce_plan(row.dtype, row.ranks, row.ranks * row.replicas, row.factor, row.force_sum);
    EXPECT_EQ(plan.pre_divide, row.pre) << i;
    EXPECT_EQ(plan.reduce_scatter.op, row.scatter) << i;
    EXPECT_EQ(plan.all_reduce.op, row.reduce) << i;
    EXPECT_EQ(plan.post_divide, row.post) << i;
    if (row.scatter == premul) {
      EXPECT_EQ(plan.reduce_scatter.factor, 1 / *row.factor) << i;
    }
  }
}

at::Tensor scaled_gradient(const Rank& rank, const std::function<void(FSDPModule&)>& configure) {
  Linear layer(4, 4);
  initialize(*layer);
  auto unit = fully_shard(layer, {.mesh = rank.mesh()});
  configure(unit);
  layer(values({2, 4}, rank.rank)).sum().backward();
  return full_values(*layer, true)[0];
}

TEST(DivideFactor, OverTheWorldAndBySum) {
  run_ranks(2, [](const Rank& rank) {
    const auto mean = scaled_gradient(rank, [](FSDPModule&) {});
    EXPECT_GT(mean.abs().sum().item<float>(), 0);
    EXPECT_TRUE(
        at::equal(mean, scaled_gradient(rank, [](FSDPModule& unit) { unit.set_gradient_divide_factor(2); })));
    EXPECT_TRUE(at::equal(
        mean, scaled_gradient(rank, [](FSDPModule& unit) { unit.set_force_sum_reduction_for_comms(true); })));
    EXPECT_TRUE(at::equal(mean / 4, scaled_gradient(rank, [](FSDPModule& unit) {
                            unit.set_force_sum_reduction_for_comms(true);
                            unit.set_gradient_divide_factor(8);
                          })));
    EXPECT_TRUE(at::equal(mean * 3, scaled_gradient(rank, [](FSDPModule& unit) {
                            unit.set_all_reduce_hook([](at::Tensor output) { output.mul_(3); });
                          })));
    EXPECT_TRUE(at::equal(mean, scaled_gradient(rank, [](FSDPModule& unit) {
                            unit.set_all_reduce_hook([](at::Tensor output) { output.mul_(3); });
                            unit.set_all_reduce_hook(nullptr);
                          })));
  });
}

TEST(DivideFactor, WithOneRank) {
  run_ranks(1, [](const Rank& rank) {
    const auto plain = scaled_gradient(rank, [](FSDPModule&) {});
    EXPECT_TRUE(at::equal(
        plain / 4, scaled_gradient(rank, [](FSDPModule& unit) { unit.set_gradient_divide_factor(4); })));
    EXPECT_EQ(rank.trace->take().size(), 0U) << "nobody to talk to";
  });
}

TEST(Hybrid, ShardsWithinAndReplicatesAcross) {
  run_ranks(4, [](const Rank& rank) {
    Mlp model(Dims{8, 6, 4}, true), reference(Dims{8, 6, 4}, true);
    initialize(*model);
    initialize(*reference);
    shard(model, {.mesh = DeviceMesh(rank.recorded, {2, 2}, {"replicate", "shard"})});
    EXPECT_EQ(model->layers[0]->weight.size(0), 3);
    const auto input = [](int64_t r) { return values({4, 8}, r); };
    model(input(rank.rank)).sum().backward();
    // Two levels: a mean within the shard group, then one across the replicas. Exact, so equal to the mean of
    // four.
    average_gradients(reference, 4, [&](int64_t r) { return reference(input(r)).sum(); });
    const auto pair = rank.rank % 2;
    for (const auto& event : rank.trace->take()) {
      if (event.kind == CollectiveKind::all_reduce) {
        EXPECT_EQ(event.ranks, (std::vector<int64_t>{pair, pair + 2}));
      } else {
        EXPECT_EQ(event.ranks, (std::vector<int64_t>{rank.rank - pair, rank.rank - pair + 1}));
      }
    }
    expect_equal(*model, *reference, true);
  });
}

TEST(Hybrid, PartialReductionsWaitForTheAllReduce) {
  run_ranks(4, [](const Rank& rank) {
    Linear layer(4, 4), reference(4, 4);
    initialize(*layer);
    initialize(*reference);
    auto unit = fully_shard(layer, {.mesh = DeviceMesh(rank.recorded, {2, 2}, {"replicate", "shard"})});
    at::Tensor expected;
    for (int64_t step = 0; step < 3; ++step) {
      unit.set_requires_all_reduce(step == 2);
      layer(values({2, 4}, 4 * step + rank.rank)).sum().backward();
      EXPECT_EQ(layer->weight.mutable_grad().defined(), step == 2);
      at::Tensor mean;
      for (int64_t r = 0; r < 4; ++r) {
        reference->weight.mutable_grad().reset();
        reference(values({2, 4}, 4 * step + r)).sum().backward();
        const auto part = reference->weight.grad() / 4;
        mean = mean.defined() ? mean + part : part;
      }
      expected = expected.defined() ? expected + mean : mean;
    }
    EXPECT_TRUE(at::equal(full_values(*layer, true)[0], expected));
    int64_t all_reduces = 0;
    for (const auto& event : rank.trace->take()) all_reduces += event.kind == CollectiveKind::all_reduce;
    EXPECT_EQ(all_reduces, 1);
  });
}

/// A module that uses each parameter in the dtype it finds.
struct TwoDtypesImpl : torch::nn::Module {
  TwoDtypesImpl() : a(register_parameter("a", at::ones({4}))), b(register_parameter("b", at::ones({4}))) {}
  at::Tensor forward(const at::Tensor& input) {
    return input.sum() * (a.to(at::kFloat) + b.to(at::kFloat)).sum();
  }
  at::Tensor a, b;
};
FSDP_HOOKED_MODULE(TwoDtypes, TwoDtypesImpl);

TEST(Gradients, OfSeveralDtypesAreRefused) {
  run_ranks(2, [](const Rank& rank) {
    TwoDtypes module;
    module->b.set_data(module->b.to(at::kBFloat16));
    module->b.set_requires_grad(false);  // or the first forward would refuse it
    fully_shard(module, {.mesh = rank.mesh()});
    module(at::ones({1})).sum().backward();
    module->b.set_requires_grad(true);
    EXPECT_EQ(message_of<InvalidState>([&] { module(at::ones({1})).sum().backward(); }),
              "FSDP reduce-scatter expects uniform gradient dtype but got {torch.bfloat16, torch.float32}");
  });
}

}  // namespace
}  // namespace fsdp::testing
