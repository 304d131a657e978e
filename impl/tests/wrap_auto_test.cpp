// From options to units: policies with settings, ignored states, batch norms, and wrapping where a model is
// made. Nothing communicates.
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include "fsdp/comm/dummy_group.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/hooks.hpp"
#include "fsdp/wrap/enable_wrap.hpp"
#include "tests/ranks.hpp"
#include "tests/wrap_models.hpp"

namespace fsdp::testing {
namespace {

using flat::FSDPOptions;
using flat::FullyShardedDataParallel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

FSDP_HOOKED_MODULE(WrapLinear, torch::nn::LinearImpl);
FSDP_HOOKED_MODULE(WrapNorm, torch::nn::BatchNorm1dImpl);

/// Two linear layers around a batch norm.
struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    register_module("first", WrapLinear(4, 4));
    norm = register_module("norm", WrapNorm(4));
    register_module("last", WrapLinear(4, 4));
  }
  at::Tensor forward(const at::Tensor& input) { return norm(input); }
  WrapNorm norm{nullptr};
};
FSDP_HOOKED_MODULE(Normed, NormedImpl);

FSDPOptions over_two_ranks() {
  FSDPOptions options;
  options.process_group = make_dummy_group(0, 2);
  return options;
}

std::vector<std::string> unit_names(const torch::nn::Module& root) {
  std::vector<std::string> names;
  for (const auto& [name, unit] : flat::named_units(root)) names.push_back(name);
  return names;
}

std::shared_ptr<const flat::WrapPolicy> linears() {
  return std::make_shared<flat::ModuleWrapPolicy>(std::vector{class_named("Linear")});
}

class Warned : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

TEST(AutoWrap, ByClassWithTheRootsOptions) {
  Normed model;
  FSDPOptions options = over_two_ranks();
  options.auto_wrap_policy = linears();
  options.sharding_strategy = flat::ShardingStrategy::shard_grad_op;
  options.use_orig_params = true;
  FullyShardedDataParallel(model, options);
  EXPECT_THAT(unit_names(*model), ElementsAre("", "first", "last"));
  for (const auto& [name, unit] : flat::named_units(*model)) {
    EXPECT_EQ(unit.sharding_strategy(), flat::ShardingStrategy::shard_grad_op) << name;
    EXPECT_TRUE(unit.use_orig_params()) << name;
  }
}

TEST(AutoWrap, CustomAnswers) {
  Normed model;
  const auto* last = at(model.ptr(), "last").get();
  FSDPOptions options = over_two_ranks();
  options.auto_wrap_policy = std::make_shared<flat::CustomPolicy>(
      [last](const torch::nn::Module& module) -> flat::CustomPolicy::Answer {
        if (&module == last) {
          return flat::OptionsOverride(
              [](FSDPOptions& of) { of.backward_prefetch = flat::BackwardPrefetch::backward_post; });
        }
        return class_named("Linear").matches(module);
      });
  FullyShardedDataParallel(model, options);
  EXPECT_THAT(unit_names(*model), ElementsAre("", "first", "last"));
  EXPECT_EQ(FullyShardedDataParallel::of(*last).backward_prefetch(), flat::BackwardPrefetch::backward_post);
  EXPECT_EQ(FullyShardedDataParallel::of(*at(model.ptr(), "first")).backward_prefetch(),
            flat::BackwardPrefetch::backward_pre);
}

TEST(AutoWrap, UnitsBelowAreRefusedByName) {
  Normed model;
  FullyShardedDataParallel(at(model.ptr(), "norm"), over_two_ranks());
  FSDPOptions options = over_two_ranks();
  options.auto_wrap_policy = linears();
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { FullyShardedDataParallel(model, options); }),
      StartsWith("FSDP auto wrapping requires modules to not already have FSDP applied but found norm in\n"));
}

TEST(AutoWrap, IgnoredModulesAreNoUnitsAndKeepTheirParameters) {
  Normed model;
  FSDPOptions options = over_two_ranks();
  options.auto_wrap_policy = std::make_shared<flat::FunctionPolicy>(always_wrap_policy());
  options.ignored_modules = flat::ModuleList{at(model.ptr(), "first")};
  FullyShardedDataParallel(model, options);
  EXPECT_THAT(unit_names(*model), ElementsAre("", "norm", "last"));
  EXPECT_EQ(at(model.ptr(), "first")->parameters().at(0).sizes(), at::IntArrayRef({4, 4}));
}

struct NamedPolicy {
  const char* name;
  std::shared_ptr<const flat::WrapPolicy> policy;

  friend void PrintTo(const NamedPolicy& named, std::ostream* out) { *out << named.name; }
};

class BatchNorms : public ::testing::TestWithParam<NamedPolicy> {};

TEST_P(BatchNorms, AreUnitsOfTheirOwnUnderMixedPrecision) {
  Normed model;
  FSDPOptions options = over_two_ranks();
  options.auto_wrap_policy = GetParam().policy;
  options.mixed_precision = flat::MixedPrecision{.param_dtype = at::kHalf};
  Warned warned;
  FullyShardedDataParallel(model, options);
  EXPECT_THAT(unit_names(*model), ElementsAre("", "first", "norm", "last"));
  EXPECT_EQ(FullyShardedDataParallel::of(*model->norm).mixed_precision(), flat::MixedPrecision{});
  EXPECT_EQ(FullyShardedDataParallel::of(*at(model.ptr(), "first")).mixed_precision().param_dtype, at::kHalf);
  ASSERT_EQ(warned.texts.size(), 1);
  EXPECT_THAT(warned.texts.at(0),
              AllOf(StartsWith("Both mixed precision and an auto_wrap_policy were specified to FSDP"),
                    HasSubstr("{BatchNorm1d}")));
}

INSTANTIATE_TEST_SUITE_P(
    AutoWrap, BatchNorms,
    ::testing::Values(NamedPolicy{"ModuleWrapPolicy", linears()},
                      NamedPolicy{"wrap_module_classes_individually",
                                  std::make_shared<flat::FunctionPolicy>(
                                      wrap_module_classes_individually({class_named("Linear")}))}));

TEST(AutoWrap, BatchNormsStayWithoutMixedPrecision) {
  Normed model;
  FSDPOptions options = over_two_ranks();
  options.auto_wrap_policy = linears();
  Warned warned;
  FullyShardedDataParallel(model, options);
  EXPECT_THAT(unit_names(*model), ElementsAre("", "first", "last"));
  EXPECT_THAT(warned.texts, IsEmpty());
}

TEST(AutoWrap, WhatComputesInFullPrecisionGivesTheDtypeBack) {
  run_ranks(1, [](const Rank& rank) {
    Normed model;
    FSDPOptions options;
    options.process_group = rank.plain;
    options.auto_wrap_policy = linears();
    options.mixed_precision = flat::MixedPrecision{.param_dtype = at::kHalf};
    FullyShardedDataParallel(model, options);
    EXPECT_EQ(model(at::ones({2, 4}, at::kHalf)).scalar_type(), at::kHalf);
    EXPECT_EQ(model->norm->running_mean.scalar_type(), at::kFloat);
    EXPECT_EQ(model->norm(at::ones({2, 4})).scalar_type(), at::kFloat) << "the next forward starts anew";
  });
}

TEST(EnableWrap, OutsideNothingHappens) {
  const WrapLinear layer = flat::wrap(WrapLinear(4, 4));
  EXPECT_FALSE(FullyShardedDataParallel::is(*layer));
}

TEST(EnableWrap, InsideTheContextsOptionsHoldAndExplicitOnesWin) {
  FSDPOptions options = over_two_ranks();
  options.sharding_strategy = flat::ShardingStrategy::shard_grad_op;
  WrapLinear plain{nullptr}, special{nullptr};
  {
    const flat::EnableWrap context(options);
    plain = flat::wrap(WrapLinear(4, 4));
    special =
        flat::wrap(WrapLinear(4, 4), [](FSDPOptions& of) { of.process_group = make_dummy_group(0, 4); });
  }
  EXPECT_EQ(FullyShardedDataParallel::of(*plain).world_size(), 2);
  const auto unit = FullyShardedDataParallel::of(*special);
  EXPECT_EQ(unit.world_size(), 4);
  EXPECT_EQ(unit.sharding_strategy(), flat::ShardingStrategy::shard_grad_op);
  EXPECT_FALSE(FullyShardedDataParallel::is(*flat::wrap(WrapLinear(4, 4)))) << "the context is over";
}

TEST(EnableWrap, ContextsDoNotNest) {
  const flat::EnableWrap context(over_two_ranks());
  EXPECT_EQ(message_of<NotImplemented>([] { flat::EnableWrap nested(over_two_ranks()); }),
            "You are already within an autowrap context and we currently do not supported nested autowrap.");
  EXPECT_TRUE(FullyShardedDataParallel::is(*flat::wrap(WrapLinear(4, 4)))) << "the first one is still there";
}

}  // namespace
}  // namespace fsdp::testing
