// When parameters are gathered and freed: exact collectives, shapes and memory for every value of
// reshard_after_forward.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "per_parameter/state.hpp"
#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using Events = std::vector<CollectiveEvent>;

int64_t count(const Events& events, CollectiveKind kind, Phase phase) {
  return std::count_if(events.begin(), events.end(),
                       [&](const auto& event) { return event.kind == kind && event.site.phase == phase; });
}

/// Bytes under the gathered parameters of a unit.
size_t unsharded_bytes(const torch::nn::Module& module) {
  size_t bytes = 0;
  for (const auto& param : FSDPModule::of(module).state()->group()->params()) {
    if (param->has_unsharded()) bytes += param->full().storage().nbytes();
  }
  return bytes;
}

struct Expected {
  int64_t forward_gathers, backward_gathers, reduce_scatters;
};

void expect_step(const Rank& rank, ReshardAfterForward reshard, const Expected& expected) {
  Mlp model(std::vector<int64_t>{8, 6, 4, 4}, true);  // three layers and a root with a parameter: four units
  initialize(*model);
  shard(model, {.mesh = rank.mesh(), .reshard_after_forward = reshard});
  for (int step = 0; step < 2; ++step) {
    rank.trace->take();
    const auto output = model(values({4, 8}, rank.rank));
    output.sum().backward();
    const auto events = rank.trace->take();
    EXPECT_EQ(count(events, CollectiveKind::all_gather, Phase::forward), expected.forward_gathers);
    EXPECT_EQ(count(events, CollectiveKind::all_gather, Phase::backward), expected.backward_gathers);
    EXPECT_EQ(count(events, CollectiveKind::reduce_scatter, Phase::backward), expected.reduce_scatters);
    EXPECT_EQ(static_cast<int64_t>(events.size()),
              expected.forward_gathers + expected.backward_gathers + expected.reduce_scatters);
    for (const auto& [name, unit] : named_units(*model)) {
      EXPECT_EQ(unit.sharded_state(), ShardedState::sharded) << name;
      EXPECT_EQ(unit.training_state(), TrainingState::idle) << name;
    }
    for (const auto& layer : model->layers) EXPECT_EQ(unsharded_bytes(*layer), 0U);
  }
}

TEST(Reshard, NoneKeepsTheRoot) {
  run_ranks(2, [](const Rank& rank) { expect_step(rank, std::monostate{}, {4, 3, 4}); });
}
TEST(Reshard, True) {
  run_ranks(2, [](const Rank& rank) { expect_step(rank, true, {4, 4, 4}); });
}
TEST(Reshard, False) {
  run_ranks(2, [](const Rank& rank) { expect_step(rank, false, {4, 0, 4}); });
}
TEST(Reshard, OneIsFalseAndAllIsTrue) {
  run_ranks(2, [](const Rank& rank) {
    expect_step(rank, int64_t{1}, {4, 0, 4});
    expect_step(rank, int64_t{2}, {4, 4, 4});
  });
}

TEST(Reshard, ToASmallerGroup) {
  run_ranks(4, [](const Rank& rank) {
    expect_step(rank, int64_t{2}, {4, 4, 4});
    Linear layer(6, 5);  // padded to 8 rows
    initialize(*layer);
    const auto whole = layer->weight.detach().clone();
    auto unit = fully_shard(layer, {.mesh = rank.mesh(), .reshard_after_forward = int64_t{2}});
    EXPECT_EQ(std::get<int64_t>(unit.reshard_after_forward()), 2);
    rank.trace->take();
    const auto output = layer(values({3, 6}, rank.rank));
    EXPECT_EQ(unit.sharded_state(), ShardedState::sharded_post_forward);
    EXPECT_EQ(unsharded_bytes(*layer), 0U);
    // The piece is a half of the padded unit, so the second one shows row 4 and padding where its shape stands
    // for rows 3 and 4, as PyTorch's does (FS-RESHARD-2).
    const bool first = rank.rank % 2 == 0;
    EXPECT_EQ(layer->weight.size(0), first ? 3 : 2);
    EXPECT_TRUE(first ? at::equal(layer->weight.detach(), whole.narrow(0, 0, 3))
                      : at::equal(layer->weight.detach()[0], whole[4]));
    output.sum().backward();
    const auto events = rank.trace->take();
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[0].ranks, (std::vector<int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(events[0].in_numel, 2 * 6 + 2);
    EXPECT_EQ(events[1].ranks, rank.rank < 2 ? (std::vector<int64_t>{0, 1}) : (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(events[1].in_numel, 4 * 6 + 4);
    EXPECT_EQ(events[1].out_numel, 8 * 6 + 8);
    EXPECT_EQ(events[2].ranks.size(), 4U);

    layer(values({3, 6}, 0));
    unit.reshard();
    EXPECT_EQ(unit.sharded_state(), ShardedState::sharded);
    EXPECT_TRUE(at::equal(full_values(*layer)[0], whole));
  });
}

TEST(Reshard, SwitchesAtRunTime) {
  run_ranks(2, [](const Rank& rank) {
    Mlp model(std::vector<int64_t>{8, 6, 4}, true);
    shard(model, {.mesh = rank.mesh()});
    auto root = FSDPModule::of(*model);
    root.set_reshard_after_forward(false);
    auto output = model(values({4, 8}, 1));
    EXPECT_GT(unsharded_bytes(*model->layers[0]), 0U);
    root.set_reshard_after_backward(false);
    output.sum().backward();
    EXPECT_GT(unsharded_bytes(*model->layers[0]), 0U);
    root.set_reshard_after_backward(true);
    root.set_reshard_after_forward(true);
    rank.trace->take();
    output = model(values({4, 8}, 1));
    EXPECT_EQ(rank.trace->take().size(), 0U) << "everything was still there";
    EXPECT_EQ(unsharded_bytes(*model), 0U) << "the root gives up what nobody asked it to keep";
    output.sum().backward();
    EXPECT_EQ(count(rank.trace->take(), CollectiveKind::all_gather, Phase::backward), 3);
  });
}

TEST(Reshard, ByHand) {
  run_ranks(2, [](const Rank& rank) {
    Linear layer(4, 4);
    initialize(*layer);
    const auto whole = layer->weight.detach().clone();
    auto unit = fully_shard(layer, {.mesh = rank.mesh(), .mp_policy = {.param_dtype = at::kBFloat16}});
    EXPECT_FALSE(unit.unshard().has_value());
    EXPECT_EQ(layer->weight.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(layer->weight.detach(), whole.to(at::kBFloat16)));
    unit.reshard();
    EXPECT_EQ(layer->weight.size(0), 2);
    auto handle = unit.unshard(true);
    ASSERT_TRUE(handle.has_value());
    EXPECT_EQ(layer->weight.size(0), 2) << "not before wait";
    handle->wait();
    EXPECT_EQ(layer->weight.size(0), 4);
    handle->wait();
    unit.reshard();
    EXPECT_EQ(rank.trace->take().size(), 2U);
  });
}

TEST(Reshard, IdentityAndShapesOfTheRegisteredParameter) {
  run_ranks(2, [](const Rank& rank) {
    Linear layer(4, 5);
    const auto weight = layer->weight;
    const auto* before = weight.unsafeGetTensorImpl();
    auto unit = fully_shard(layer, {.mesh = rank.mesh(), .reshard_after_forward = false});
    EXPECT_EQ(layer->weight.unsafeGetTensorImpl(), before);
    EXPECT_EQ(weight.size(0), rank.rank == 0 ? 3 : 2);
    EXPECT_TRUE(weight.is_leaf());
    const auto output = layer(values({2, 4}, 0));
    EXPECT_EQ(weight.size(0), 5);
    output.sum().backward();
    EXPECT_EQ(weight.size(0), rank.rank == 0 ? 3 : 2);
    EXPECT_EQ(weight.grad().sizes(), weight.sizes());
    EXPECT_FALSE(weight.grad().is_view());
    EXPECT_TRUE(weight.is_leaf() && weight.requires_grad());
    torch::nn::Module& module = *layer;
    module.zero_grad(/*set_to_none=*/false);
    EXPECT_EQ(weight.grad().abs().sum().item<float>(), 0);
    EXPECT_EQ(unit.parameters().at(0).layout->pieces().at(0).offset, rank.rank == 0 ? 0 : 12);
  });
}

}  // namespace
}  // namespace fsdp::testing
