// Where parameters lie in a flat parameter, for both ranks of two: literal numbers. A dummy group will do.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "flat/unit.hpp"
#include "fsdp/comm/dummy_group.hpp"
#include "tests/flat_models.hpp"

namespace fsdp::testing {
namespace {

using flat::FSDPOptions;
using flat::FullyShardedDataParallel;

/// Elements of each parameter on both ranks.
using Split = std::map<std::string, std::pair<int64_t, int64_t>>;

template <class Holder>
void expect_layout(const std::function<Holder()>& make,
                   const std::function<void(Holder&, const FSDPOptions&)>& wrap, FSDPOptions options,
                   const std::string& unit, int64_t total, int64_t shard, const Split& split) {
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto model = make();
    initialize(*model);
    options.process_group = make_dummy_group(rank, 2);
    wrap(model, options);
    for (const auto& [name, handle] : flat::named_units(*model)) {
      if (name != unit) continue;
      const auto& layout = handle.state()->flat()->shard().layout();
      EXPECT_EQ(layout.unsharded_numel, total) << unit;
      EXPECT_EQ(layout.shard_numel, shard) << unit;
    }
    for (const auto& [name, numels] : split) {
      const auto expected = rank == 0 ? numels.first : numels.second;
      const auto parameter = seen(*model, name);
      EXPECT_EQ(parameter.value.numel(), expected) << name << " on rank " << rank;
      EXPECT_EQ(parameter.value.dim(), 1) << name;
      EXPECT_EQ(parameter.shard_piece.length, expected);
      EXPECT_FALSE(parameter.gradient.defined());
      EXPECT_EQ(parameter.shard_piece.start,
                rank == 1 && expected
                    ? parameter.shard_piece.shape[0] *
                              (parameter.shard_piece.shape.size() > 1 ? parameter.shard_piece.shape[1] : 1) -
                          expected
                    : 0);
    }
  }
}

void one_unit(TwoLinears& model, const FSDPOptions& options) {
  FullyShardedDataParallel(model, options);
}
void a_unit_each(TwoLinears& model, const FSDPOptions& options) {
  FullyShardedDataParallel(model->lin1, options);
  FullyShardedDataParallel(model->lin2, options);
}

TEST(FlatLayout, NumbersOfTheSeeds) {
  run_ranks(1, [](const Rank&) {
    const std::function<TwoLinears()> with_bias = [] { return TwoLinears(); };
    const std::function<TwoLinears()> without_bias = [] { return TwoLinears(false); };
    const FSDPOptions orig{.use_orig_params = true};
    const FSDPOptions half{.mixed_precision = flat::MixedPrecision{.param_dtype = at::kHalf},
                           .use_orig_params = true};
    expect_layout<TwoLinears>(without_bias, a_unit_each, orig, "lin1", 26, 13, {{"lin1.weight", {13, 12}}});
    expect_layout<TwoLinears>(without_bias, a_unit_each, orig, "lin2", 44, 22,
                              {{"lin2.weight", {22, 13}}, {"lin2.bias", {0, 7}}});
    expect_layout<TwoLinears>(
        with_bias, one_unit, orig, "", 80, 40,
        {{"lin1.weight", {25, 0}}, {"lin1.bias", {5, 0}}, {"lin2.weight", {4, 31}}, {"lin2.bias", {0, 7}}});
    expect_layout<TwoLinears>(
        with_bias, one_unit, FSDPOptions{}, "", 72, 36,
        {{"lin1.weight", {25, 0}}, {"lin1.bias", {5, 0}}, {"lin2.weight", {6, 29}}, {"lin2.bias", {0, 7}}});
    expect_layout<TwoLinears>(with_bias, a_unit_each, orig, "lin1", 34, 17,
                              {{"lin1.weight", {17, 8}}, {"lin1.bias", {0, 5}}});
    expect_layout<TwoLinears>(with_bias, a_unit_each, half, "lin1", 38, 19,
                              {{"lin1.weight", {19, 6}}, {"lin1.bias", {0, 5}}});
    expect_layout<TwoLinears>(with_bias, a_unit_each, half, "lin2", 48, 24,
                              {{"lin2.weight", {24, 11}}, {"lin2.bias", {0, 7}}});
  });
}

TEST(FlatLayout, FillersAndPadding) {
  run_ranks(1, [](const Rank&) {
    for (const bool use_orig_params : {true, false}) {
      TwoLinears model;
      initialize(*model);
      // Three ranks: 80 elements (81 with the tail) or 72, of which rank 2 has the last 27 or 24.
      FullyShardedDataParallel unit(
          model, {.process_group = make_dummy_group(2, 3), .use_orig_params = use_orig_params});
      const auto& flat = *unit.state()->flat();
      EXPECT_EQ(flat.shard().layout().unsharded_numel, use_orig_params ? 81 : 72);
      const auto& shard = flat.shard().tensor();
      if (use_orig_params) {
        EXPECT_EQ(shard[26].item<float>(), 42) << "the tail";
        EXPECT_EQ(shard[17].item<float>(), 42)
            << "between lin2.weight, which ends at 71, and lin2.bias at 72";
      }
      EXPECT_EQ(shard.numel(), use_orig_params ? 27 : 24);
    }
    // 25 elements over three: 9, 9, 7 and two of padding, which is zero.
    SlotLinear layer(5, 5, false);
    initialize(*layer);
    FullyShardedDataParallel unit(layer, {.process_group = make_dummy_group(2, 3)});
    EXPECT_EQ(unit.flat_parameter().numel(), 9);
    EXPECT_EQ(unit.flat_parameter().detach().slice(0, 7).abs().sum().item<float>(), 0);
    EXPECT_EQ(seen(*layer, "weight").value.numel(), 7);
  });
}

TEST(FlatLayout, ObjectsAndRegistration) {
  run_ranks(1, [](const Rank&) {
    TwoLinears model;
    initialize(*model);
    const auto before = model->parameters();
    FullyShardedDataParallel unit(model, {.process_group = make_dummy_group(0, 2), .use_orig_params = true});
    const auto after = model->parameters();
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].is_same(before[i]));
    EXPECT_FALSE(unit.flat_parameter().defined());

    TwoLinears flat_model;
    FullyShardedDataParallel flat_unit(flat_model, {.process_group = make_dummy_group(0, 2)});
    ASSERT_EQ(flat_model->named_parameters().keys(), std::vector<std::string>{"_flat_param"});
    EXPECT_TRUE(flat_model->parameters()[0].is_same(flat_unit.flat_parameter()));
    EXPECT_TRUE(flat_unit.flat_parameter().requires_grad());
  });
}

TEST(FlatLayout, Refusals) {
  run_ranks(1, [](const Rank&) {
    const auto message = [](auto change, bool use_orig_params = true) {
      TwoLinears model;
      initialize(*model);
      change(*model);
      const auto before = model->named_parameters();
      const auto text = message_of<InvalidArgument>([&] {
        FullyShardedDataParallel(
            model, {.process_group = make_dummy_group(0, 2), .use_orig_params = use_orig_params});
      });
      const auto after = model->named_parameters();
      EXPECT_EQ(after.keys(), before.keys());
      for (const auto& entry : before) EXPECT_EQ(after[entry.key()].sizes(), entry.value().sizes());
      EXPECT_FALSE(FullyShardedDataParallel::is(*model));
      return text;
    };
    EXPECT_EQ(message([](auto& m) { m.lin2->slot("bias").set_data(at::zeros({7}, at::kDouble)); }),
              "Must flatten tensors with uniform dtype but got torch.float32 and torch.float64");
    EXPECT_EQ(message([](auto& m) { m.lin2->bias.set_requires_grad(false); }, false),
              "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`");
    EXPECT_EQ(
        message([](auto& m) { m.lin1->slot("bias").set_data(at::zeros({})); }),
        "FSDP doesn't support scalar parameters. Change lin1.bias to a 1D tensor with numel equal to 1.");
    EXPECT_EQ(message([](auto& m) { m.lin1->slot("bias") = at::zeros({5}, at::kLong); }),
              "Cannot flatten integer dtype tensors");
    TwoLinears twice;
    FullyShardedDataParallel(twice, {.process_group = make_dummy_group(0, 2)});
    EXPECT_NE(message_of<InvalidArgument>([&] { FullyShardedDataParallel{twice}; }).find("already"),
              std::string::npos);
    EXPECT_NE(message_of<InvalidState>([&] {
                flat::fully_shard(twice.ptr());
              }).find("can only be applied to a module once"),
              std::string::npos);
    TwoLinears hybrid;
    EXPECT_EQ(message_of<InvalidArgument>([&] {
                FullyShardedDataParallel(hybrid, {.process_group = make_dummy_group(0, 2),
                                                  .sharding_strategy = flat::ShardingStrategy::hybrid_shard});
              }),
              "Manual wrapping with ShardingStrategy.HYBRID_SHARD requires explicit specification of process "
              "group or "
              "device_mesh.");
  });
}

}  // namespace
}  // namespace fsdp::testing
