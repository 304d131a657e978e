#include "reference/wrap_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/sdk/cpp/build_model.hpp"
#include "harness/sdk/cpp/errors.hpp"
#include "reference/tests/simulated.hpp"

namespace fsdp_cts::reference {
namespace {

using sdk::linear;
using sdk::sequential;
using testing::ElementsAre;

class WrapPolicy : public testing::Test {
 protected:
  // On meta: policies look at shapes, not at values.
  void build(const Json& description) {
    model = sdk::build_model(description, data, "model", at::kMeta, std::make_shared<sdk::Recorder>());
  }
  std::vector<std::string> wrapped(const Json& policy, Json settings = Json::object(),
                                   const std::vector<std::string>& ignored = {}) {
    settings["auto_wrap"] = policy;
    WrapRequest request{*model, settings, {}, {}, {}};
    for (const std::string& path : ignored) {
      for (const auto& [name, module] : named_modules(model->child(path))) {
        request.ignored_modules.insert(module);
        for (const std::string& key : module->parameter_names())
          request.ignored_parameters.insert(module->parameter(key).unsafeGetTensorImpl());
      }
    }
    targets = wrap_targets(request, context);
    std::vector<std::string> paths;
    for (const WrapTarget& target : targets) paths.push_back(target.path);
    return paths;
  }
  sdk::Data data;
  sdk::Context context;
  std::shared_ptr<sdk::Module> model;
  std::vector<WrapTarget> targets;
};

Json nested() {
  return sequential({linear(5, 5), linear(5, 5), sequential({linear(5, 5), linear(5, 5)})});
}
Json size_based(int n) {
  return {{"policy", "size_based"}, {"min_num_params", n}};
}
Json batch_norm() {
  return {{"type", "BatchNorm1d"}, {"class", "BatchNorm1d"}, {"features", 4}};
}

TEST_F(WrapPolicy, SizeBasedWrapsWhatIsLeftLargeEnough) {
  build(nested());
  EXPECT_THAT(wrapped(size_based(40)), ElementsAre("2"));
  EXPECT_THAT(wrapped(size_based(0)), ElementsAre("0", "1", "2.0", "2.1", "2"));
  EXPECT_THAT(wrapped({{"policy", "always"}}), ElementsAre("0", "1", "2.0", "2.1", "2"));
  EXPECT_THAT(wrapped(size_based(40), Json::object(), {"1", "2.0"}), ElementsAre());
  EXPECT_THAT(wrapped({{"policy", "always"}}, Json::object(), {"1", "2.0"}), ElementsAre("0", "2.1", "2"));
}

TEST_F(WrapPolicy, SizeBasedLeavesListsAndAttentionAlone) {
  Json list = sequential({linear(10, 10)});
  list["type"] = list["class"] = "ModuleList";
  build(sequential(
      {list, {{"type", "MultiheadAttention"}, {"class", "MultiheadAttention"}, {"dim", 100}, {"heads", 1}}}));
  EXPECT_THAT(wrapped(size_based(40)), ElementsAre("0.0"));
}

TEST_F(WrapPolicy, SizeBasedTakesOtherLeavesAndOtherLists) {
  Json list = sequential({linear(10, 10)});
  list["type"] = list["class"] = "ModuleList";
  build(sequential(
      {list, {{"type", "MultiheadAttention"}, {"class", "MultiheadAttention"}, {"dim", 100}, {"heads", 1}}}));
  Json policy = size_based(40);
  policy["force_leaf"] = Json::array();
  EXPECT_THAT(wrapped(policy), ElementsAre("0.0", "1.out_proj", "1"));
  policy["force_leaf"] = {"ModuleList"};
  EXPECT_THAT(wrapped(policy), ElementsAre("1.out_proj", "1"));
  policy["exclude_wrap"] = {"Linear"};
  EXPECT_THAT(wrapped(policy), ElementsAre("1"));
}

TEST_F(WrapPolicy, NeverLeavesTheDecisionToTheOthers) {
  build(nested());
  const Json never = {{"policy", "never"}};
  EXPECT_THAT(wrapped(never), ElementsAre());
  EXPECT_THAT(
      wrapped({{"policy", "or"},
               {"policies", Json::array({never, {{"policy", "transformer"}, {"classes", {"Sequential"}}}})}}),
      ElementsAre("2"));
}

TEST_F(WrapPolicy, ClassesAreNominalOrTheTypeBelow) {
  Json special = linear(5, 5);
  special["class"] = "Special";
  build(sequential({special, linear(5, 5)}));
  EXPECT_THAT(wrapped({{"policy", "module_wrap"}, {"classes", {"Special"}}}), ElementsAre("0"));
  EXPECT_THAT(wrapped({{"policy", "transformer"}, {"classes", {"Linear"}}}), ElementsAre("0", "1"));
  EXPECT_THAT(wrapped({{"policy", "or"},
                       {"policies", Json::array({{{"policy", "batch_norm"}},
                                                 {{"policy", "module_wrap"}, {"classes", {"Special"}}}})}}),
              ElementsAre("0"));
}

TEST_F(WrapPolicy, CustomRulesOverrideTheRootsSettings) {
  build(sequential({linear(5, 5), batch_norm(), {{"type", "ReLU"}, {"class", "ReLU"}}}));
  const Json rules = Json::array({{{"class", "Linear"}, {"wrap", {{"sharding_strategy", "SHARD_GRAD_OP"}}}},
                                  {{"class", "ReLU"}, {"wrap", false}}});
  EXPECT_THAT(wrapped({{"policy", "custom"}, {"rules", rules}}, {{"backward_prefetch", "BACKWARD_POST"}}),
              ElementsAre("0"));
  EXPECT_EQ(targets[0].settings["sharding_strategy"], "SHARD_GRAD_OP");
  EXPECT_EQ(targets[0].settings["backward_prefetch"], "BACKWARD_POST");
}

TEST_F(WrapPolicy, UnderMixedPrecisionBatchNormsAreUnitsWithoutIt) {
  build(sequential({linear(5, 5), batch_norm()}));
  for (const Json& policy : {Json{{"policy", "module_wrap"}, {"classes", {"Linear"}}}, size_based(1000)}) {
    context.warnings.clear();
    const std::vector<std::string> paths = wrapped(policy, {{"mixed_precision", {{"param_dtype", nullptr}}}});
    EXPECT_EQ(paths.back(), "1");
    EXPECT_TRUE(targets.back().settings["mixed_precision"].is_null());
    ASSERT_EQ(context.warnings.size(), 1u);
    EXPECT_THAT(context.warnings[0].message, testing::HasSubstr("separate FSDP instacnes"));
  }
  context.warnings.clear();
  EXPECT_THAT(wrapped({{"policy", "module_wrap"}, {"classes", {"Linear"}}}), ElementsAre("0"));
  EXPECT_TRUE(context.warnings.empty());
}

TEST_F(WrapPolicy, WhatIsWrappedAlreadyIsRefusedByName) {
  build(nested());
  WrapRequest request{*model, {{"auto_wrap", size_based(0)}}, {&model->child("2.1")}, {}, {}};
  try {
    wrap_targets(request, context);
    FAIL() << "no error";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.report().type, "ValueError");
    EXPECT_THAT(
        error.what(),
        testing::StartsWith(
            "FSDP auto wrapping requires modules to not already have FSDP applied but found 2.1 in\n"));
  }
}

TEST_F(WrapPolicy, MixedFrozenAndTrainableMembers) {
  build(sequential({sequential({linear(2, 3, false), linear(3, 4, false)})}));
  model->child("0.0").parameter("weight").set_requires_grad(false);
  const Json policy = {{"policy", "module_wrap"}, {"classes", {"Sequential"}}};
  const std::string lists =
      "If possible, wrap the frozen parameters with FSDP separately.\nThe following parameters have "
      "requires_grad=True:\n['0.1.weight']\n"
      "The following parameters have requires_grad=False:\n['0.0.weight']";
  wrapped(policy, {{"use_orig_params", true}});
  ASSERT_EQ(context.warnings.size(), 1u);
  EXPECT_EQ(
      context.warnings[0].message,
      "0 has both parameters with requires_grad=True and False. We do not recommend wrapping such modules "
      "since the gradient memory usage "
      "will be higher than expected (18 numel instead of 12 numel before sharding via reduce-scatter). " +
          lists);
  try {
    wrapped(policy);
    FAIL() << "no error";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.what(),
              "0 has both parameters with requires_grad=True and False. FSDP does not support wrapping such "
              "modules when use_orig_params=False. " +
                  lists);
  }
  EXPECT_TRUE(frozen_mixes(*model, {&model->child("0")},
                           {model->child("0.0").parameter("weight").unsafeGetTensorImpl()}, false)
                  .empty());
}

std::vector<Json> units_of(const Json& units) {
  CaseInMemory c;
  c.model(nested()).plan({{"api", "fsdp"}, {"units", units}});
  for (const char* path : {"0", "1", "2.0", "2.1"}) {
    c.parameter(std::string(path) + ".weight", at::zeros({5, 5}))
        .parameter(std::string(path) + ".bias", at::zeros({5}));
  }
  c.steps({step("build"), step("shard"), observe({"units"})});
  return Simulated(c).entry("units").at("units");
}

TEST(WrapCall, OutsideOfAContextItMakesNoUnit) {
  const std::vector<Json> units =
      units_of({{{"modules", {"0"}}, {"enable_wrap", "outside"}}, {{"modules", {""}}}});
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units[0]["module"], "");
}

TEST(WrapCall, ItsOwnArgumentsComeBeforeThoseOfTheContext) {
  const Json context = {{"process_group", {{"dummy", 2}}},
                        {"sharding_strategy", "SHARD_GRAD_OP"},
                        {"auto_wrap", {{"policy", "always"}}},
                        {"ignored_modules", {"2.0"}}};
  const std::vector<Json> units = units_of(
      Json::array({{{"modules", {"2"}}, {"process_group", {{"dummy", 4}}}, {"enable_wrap", context}}}));
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0]["module"], "2");
  EXPECT_EQ(units[1]["module"], "2.1");
  for (const Json& unit : units) {
    EXPECT_EQ(unit["settings"]["world_size"], 4);
    EXPECT_EQ(unit["settings"]["sharding_strategy"], "SHARD_GRAD_OP");
  }
}

}  // namespace
}  // namespace fsdp_cts::reference
