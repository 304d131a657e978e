#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/sdk/cpp/serve.hpp"
#include "reference/tests/simulated.hpp"

namespace fsdp_cts::reference {
namespace {

const Json kHalf = {{"param_dtype", "float16"}, {"reduce_dtype", "float32"}};

TEST(FlatUnit, GradientsAreTheMeanOverRanksUnderEveryStrategy) {
  for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"}) {
    CaseInMemory c(4);
    one_weight(c, {1, 2, 3, 6}, {{"sharding_strategy", strategy}}, "fsdp");
    c.steps(one_backward());
    EXPECT_EQ(Simulated(c).tensor("gradients", "weight").item<float>(), 3) << strategy;
  }
}

TEST(FlatUnit, AGroupOfOneKeepsItsOwnGradient) {
  CaseInMemory c(2);
  one_weight(c, {1, 5}, {{"process_group", "self"}}, "fsdp");
  c.steps(one_backward());
  const Simulated run(c);
  EXPECT_EQ(run.tensor("gradients", "weight", 0).item<float>(), 1);
  EXPECT_EQ(run.tensor("gradients", "weight", 1).item<float>(), 5);
}

TEST(FlatUnit, NoSyncLeavesThisRanksGradientInTheComputeDtype) {
  CaseInMemory c(2);
  one_weight(c, {1, 3}, {{"use_orig_params", true}, {"mixed_precision", kHalf}}, "fsdp");
  const std::vector<Json> once{forward(), step("loss", {{"kind", "sum"}}), step("backward"),
                               observe({"gradients"})};
  c.steps({step("build"), step("shard"), step("enter", {{"scope", "no_sync"}})})
      .steps(once)
      .steps({step("leave", {{"scope", "no_sync"}})})
      .steps(once);
  const Simulated run(c);
  EXPECT_EQ(run.answers[0].entries.size(), 2u);  // one for each rank
  EXPECT_EQ(run.answers[0].entries[1]["items"][0]["dtype"], "float16");
  EXPECT_EQ(run.tensor("gradients", "weight").scalar_type(), at::kFloat);
  EXPECT_EQ(run.tensor("gradients", "weight").item<float>(), 2 * (1 + 3) / 2.f);
}

// What no testee could do is a mistake of the scenario, not its.
TEST(FlatUnit, OneFlatParameterIsNotFrozenInPart) {
  for (const bool use_orig_params : {false, true}) {
    for (const char* frozen : {"weight", "weight|bias"}) {
      CaseInMemory c(2);
      c.model(sdk::linear(2, 2)).parameter("weight", at::eye(2)).parameter("bias", at::zeros({2}));
      c.plan({{"api", "fsdp"},
              {"units", Json::array({{{"modules", {""}}, {"use_orig_params", use_orig_params}}})}});
      c.input("x", at::ones({1, 2}));
      c.steps({step("build"), step("shard"), step("set_requires_grad", {{"value", false}, {"match", frozen}}),
               forward()});
      const bool in_part = std::string(frozen) == "weight";
      if (use_orig_params || !in_part) {
        EXPECT_NO_THROW(Simulated run(c));
        continue;
      }
      try {
        const Simulated run(c);
        ADD_FAILURE() << "not refused";
      } catch (const sdk::FailedStep& failed) {
        EXPECT_THAT(failed.error.message, testing::HasSubstr("both weight and bias"));
      }
    }
  }
}

// Upstream's table: {root casts, unit casts, root has no parameters} -> what model, c1 and c2 see; null is
// not reached.
TEST(FlatUnit, ComposableCastTable) {
  struct Row {
    bool cast_root, cast_forward, bare_root;
    Json model, c1, c2;
  };
  const Json lo = "float16", hi = "float32", none;
  const std::vector<Row> rows{{true, true, true, lo, lo, lo},     {true, true, false, hi, hi, lo},
                              {true, false, true, lo, lo, lo},    {true, false, false, hi, hi, lo},
                              {false, true, true, hi, lo, lo},    {false, true, false, hi, hi, lo},
                              {false, false, true, hi, hi, none}, {false, false, false, hi, hi, hi}};
  const auto saver = [](const std::string& key) {
    return Json{{"type", "Graph"},
                {"class", "Saver"},
                {"inputs", {"x"}},
                {"output", "y"},
                {"children", Json::array({Json::array({"l", sdk::linear(2, 2)})})},
                {"forward", Json::array({{{"record", "x"}, {"as", key}},
                                         {{"call", "l"}, {"args", {"x"}}, {"to", "y"}}})}};
  };
  const Json model = {
      {"type", "Graph"},
      {"class", "Model"},
      {"inputs", {"x"}},
      {"output", "y"},
      {"children", Json::array({Json::array({"c1", saver("c1")}), Json::array({"c2", saver("c2")})})},
      {"forward", Json::array({{{"record", "x"}, {"as", "model"}},
                               {{"call", "c1"}, {"args", {"x"}}, {"to", "z"}},
                               {{"call", "c2"}, {"args", {"z"}}, {"to", "y"}}})}};
  for (const Row& row : rows) {
    const Json mixed = {{"param_dtype", "float16"},
                        {"cast_root_forward_inputs", row.cast_root},
                        {"cast_forward_inputs", row.cast_forward}};
    Json units = Json::array({{{"modules", {"c2"}}, {"mixed_precision", mixed}}});
    if (row.bare_root) units.push_back({{"modules", {"c1"}}, {"mixed_precision", mixed}});
    units.push_back(row.bare_root ? Json{{"modules", {""}}, {"mixed_precision", mixed}}
                                  : Json{{"modules", {""}}});
    CaseInMemory c(2);
    c.model(model).plan({{"api", "composable"}, {"units", units}}).input("x", at::zeros({1, 2}));
    for (const char* name : {"c1", "c2"}) {
      c.parameter(std::string(name) + ".l.weight", at::eye(2))
          .parameter(std::string(name) + ".l.bias", at::zeros({2}));
    }
    c.steps({step("build"), step("shard"), step("attempt_begin", {{"name", "a"}}), forward(),
             step("loss", {{"kind", "sum"}}), step("backward"), step("attempt_end", {{"name", "a"}}),
             observe({"recorded"})});
    const Simulated run(c);
    const Json seen = run.entry("recorded")["values"], error = run.entry("attempt")["error"];
    EXPECT_EQ(seen.value("model", Json()), row.model);
    EXPECT_EQ(seen.value("c1", Json()), row.c1);
    EXPECT_EQ(seen.value("c2", Json()), row.c2);
    ASSERT_EQ(error.is_null(), row.cast_root || row.cast_forward);
    if (!error.is_null()) {
      EXPECT_THAT(error["message"].get<std::string>(),
                  testing::HasSubstr("mat1 and mat2 must have the same dtype"));
    }
  }
}

// Replaces lin1's only parameter between forward and backward.
Json changed_between(const std::string& strategy, const Json& mutation) {
  CaseInMemory c(2);
  c.model(sdk::linear(2, 2, false)).parameter("weight", at::eye(2)).input("x", at::ones({1, 2}));
  c.plan({{"api", "fsdp"},
          {"units",
           Json::array({{{"modules", {""}}, {"use_orig_params", true}, {"sharding_strategy", strategy}}})}});
  Json mutate = step("mutate", {{"parameter", "weight"}, {"what", "value"}});
  mutate.update(mutation);
  c.steps({step("build"), step("shard"), forward(), step("loss", {{"kind", "sum"}}), mutate,
           step("attempt_begin", {{"name", "a"}}), step("backward"), step("attempt_end", {{"name", "a"}})});
  return Simulated(c).entry("attempt")["error"];
}

TEST(FlatUnit, AChangeWhileParametersAreLeftUnshardedIsRefused) {
  for (const char* how : {"data", "replace"}) {
    const Json error = changed_between("SHARD_GRAD_OP", {{"how", how}, {"fill", 2}});
    ASSERT_FALSE(error.is_null()) << how;
    EXPECT_EQ(error["type"], "AssertionError");
    EXPECT_EQ(error["phase"], "backward");
    EXPECT_THAT(
        error["message"].get<std::string>(),
        testing::StartsWith("FSDP does not support changing the parameters between forward and backward"));
  }
  EXPECT_TRUE(changed_between("SHARD_GRAD_OP", {{"how", "inplace"}, {"fill", 2}}).is_null());
  EXPECT_TRUE(changed_between("FULL_SHARD", {{"how", "data"}, {"fill", 2}}).is_null());
}

TEST(FlatUnit, AWrongShapeIsRefusedOnlyWhereThatParameterIsHeld) {
  // weight fills rank 0's half, bias lies on rank 1.
  CaseInMemory c(2);
  c.model(sdk::linear(2, 2)).parameter("weight", at::eye(2)).parameter("bias", at::zeros({2}));
  c.plan({{"api", "fsdp"}, {"units", Json::array({{{"modules", {""}}, {"use_orig_params", true}}})}});
  c.steps({step("build"), step("shard"),
           step("mutate", {{"parameter", "bias"}, {"how", "replace"}, {"fill", 1}, {"grow", 1}}),
           step("attempt_begin", {{"name", "a"}}), step("enter", {{"scope", "summon"}}),
           step("leave", {{"scope", "summon"}}), step("attempt_end", {{"name", "a"}})});
  const Simulated run(c);
  EXPECT_TRUE(run.entry("attempt", 0)["error"].is_null());
  EXPECT_EQ(
      run.entry("attempt", 1)["error"]["message"],
      "Cannot writeback when the parameter shape changes\nExpects torch.Size([2]) but got torch.Size([3])");
}

TEST(FlatUnit, AReplacedParameterIsTrainedAndTheOldOptimizerHasLostIt) {
  CaseInMemory c(2);
  one_weight(c, {1, 1}, {{"use_orig_params", true}}, "fsdp");
  c.steps({step("build"), step("shard"), step("optimizer", {{"as", "o"}, {"kind", "SGD"}, {"lr", 1.0}}),
           step("mutate", {{"parameter", "weight"}, {"how", "replace"}, {"fill", 2}}), forward(),
           step("loss", {{"kind", "sum"}}), step("backward"), step("step", {{"optimizer", "o"}}),
           observe({"loss", "parameters", "gradients"})});
  const Simulated run(c);
  EXPECT_EQ(run.tensor("loss").item<float>(), 2);
  EXPECT_EQ(run.tensor("parameters", "weight").item<float>(), 2);
  EXPECT_EQ(run.tensor("gradients", "weight").item<float>(), 1);
}

}  // namespace
}  // namespace fsdp_cts::reference
