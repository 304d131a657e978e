#include <gtest/gtest.h>

#include "reference/tests/simulated.hpp"

namespace fsdp_cts::reference {
namespace {

Json policy(const Json& mixed_precision) {
  return {{"mixed_precision", mixed_precision}};
}

float gradient(const Simulated& run, int rank = 0) {
  return run.tensor("gradients", "weight", rank).item<float>();
}

TEST(FullyShard, GradientsAreTheMeanOverRanks) {
  CaseInMemory c(4);
  one_weight(c, {1, 2, 3, 6}, Json::object(), "fully_shard");
  c.steps(one_backward());
  const Simulated run(c);
  EXPECT_EQ(gradient(run), 3);
  EXPECT_TRUE(run.entry("gradients")["rank"].is_null());  // said once for all ranks
  EXPECT_EQ(run.entry("loss", 1)["rank"], 1);             // the losses differ
  EXPECT_EQ(run.tensor("loss", "", 3).item<float>(), 6);
}

TEST(FullyShard, ReducesInTheReduceDtypeAndKeepsTheMastersDtype) {
  // bf16 has 8 bits: 257 becomes 256 on the way, so the mean of 257 and 257 is 256.
  CaseInMemory c(2);
  one_weight(c, {257, 257}, policy({{"reduce_dtype", "bfloat16"}}), "fully_shard");
  c.steps(one_backward());
  const Simulated run(c);
  EXPECT_EQ(gradient(run), 256);
  EXPECT_EQ(run.tensor("gradients", "weight").scalar_type(), at::kFloat);
  EXPECT_EQ(run.tensor("loss").item<float>(), 257);           // fp32 compute
  EXPECT_EQ(gradient(Simulated(c, "rank", "float64")), 257);  // widened, nothing is lost
}

TEST(FullyShard, WithoutAReduceDtypeTheEditionDecides) {
  // 256 + 1 is 256 in bf16.
  CaseInMemory c(2);
  one_weight(c, {256, 1}, policy({{"param_dtype", "bfloat16"}}), "fully_shard");
  c.steps(one_backward());
  EXPECT_EQ(gradient(Simulated(c, "rank", "native", "2.14")), 128);
  EXPECT_EQ(gradient(Simulated(c, "rank", "native", "2.15")), 128.5);
}

TEST(FullyShard, AnFp16SumThatWouldOverflowIsDividedBefore) {
  CaseInMemory c(2);
  one_weight(c, {60000, 60000}, policy({{"reduce_dtype", "float16"}}), "fully_shard");
  c.steps(one_backward());
  EXPECT_EQ(gradient(Simulated(c)), 60000);
}

TEST(FullyShard, ABf16SumIsDividedAfter) {
  // 3e38 twice is infinite before the division gets to it: bf16 averages are sums first.
  CaseInMemory c(2);
  one_weight(c, {3e38f, 3e38f}, policy({{"reduce_dtype", "bfloat16"}}), "fully_shard");
  c.steps(one_backward());
  EXPECT_TRUE(std::isinf(gradient(Simulated(c))));
}

TEST(FullyShard, RingAndRankOrderDifferOnThreeRanks) {
  CaseInMemory c(3);
  one_weight(c, {1, 0x1p-24f, 0x1p-24f}, Json::object(), "fully_shard");
  c.steps(one_backward());
  EXPECT_EQ(gradient(Simulated(c, "rank")), 1.f / 3);
  EXPECT_EQ(gradient(Simulated(c, "ring")),
            (1 + 0x1p-23f) / 3);  // one element: chunk 0 adds the last two ranks first
}

TEST(FullyShard, AUnitThatStaysGatheredShowsThisRanksOwnSum) {
  CaseInMemory c(2);
  one_weight(c, {1, 5}, Json::object(), "fully_shard");
  const auto keep = step("set_reshard_after_backward", {{"value", false}});
  const auto wait = step("set_requires_gradient_sync", {{"value", false}});
  std::vector<Json> steps{step("build"), step("shard"), keep, wait};
  for (int i = 0; i < 2; ++i) {
    for (const Json& s : {forward("x"), step("loss", {{"kind", "sum"}}), step("backward")})
      steps.push_back(s);
  }
  steps.push_back(observe({"gradients"}));
  c.steps(steps);
  const Simulated run(c);
  EXPECT_EQ(gradient(run, 0), 2);
  EXPECT_EQ(gradient(run, 1), 10);
  steps.insert(steps.end() - 1, step("reshard", {{"module", ""}}));
  c.steps(steps);
  EXPECT_TRUE(Simulated(c).entry("gradients")["items"][0]["none"]);
}

std::vector<Json> two_micro_batches() {
  std::vector<Json> steps{step("build"), step("shard")};
  for (const bool last : {false, true}) {
    for (const Json& s : {step("set_requires_gradient_sync", {{"value", last}}), forward(last ? "y" : "x"),
                          step("loss", {{"kind", "sum"}}), step("backward"), observe({"gradients"})}) {
      steps.push_back(s);
    }
  }
  return steps;
}

TEST(FullyShard, UnreducedGradientsAreHiddenAndWaitInTheReduceDtype) {
  for (const bool fp32_reduce : {true, false}) {
    CaseInMemory c(2);
    one_weight(
        c, {},
        policy({{"param_dtype", "bfloat16"}, {"reduce_dtype", fp32_reduce ? Json("float32") : Json()}}),
        "fully_shard");
    c.input("x", at::full({1, 1}, 256.f)).input("y", at::full({1, 1}, 1.f)).steps(two_micro_batches());
    const Simulated run(c);
    EXPECT_TRUE(run.answers[0].entries[0]["items"][0]["none"]);
    EXPECT_EQ(gradient(run), fp32_reduce ? 257 : 256);  // bf16 cannot hold 257
  }
}

TEST(FullyShard, EveryUnitCastsItsInputsAndOutputs) {
  const Json recorder = {{"type", "Graph"},
                         {"class", "R"},
                         {"inputs", {"x"}},
                         {"output", "y"},
                         {"children", Json::array({Json::array({"l", sdk::linear(1, 1, false)})})},
                         {"forward", Json::array({{{"record", "x"}, {"as", "in"}},
                                                  {{"call", "l"}, {"args", {"x"}}, {"to", "y"}},
                                                  {{"record", "y"}, {"as", "out"}}})}};
  CaseInMemory c(2);
  c.model(recorder).parameter("l.weight", at::ones({1, 1})).input("x", at::ones({1, 1}));
  const Json half = {{"param_dtype", "float16"}, {"output_dtype", "float32"}};
  c.plan({{"api", "fully_shard"},
          {"units", Json::array({{{"modules", {"l"}}, {"mixed_precision", half}}, {{"modules", {""}}}})}});
  c.steps({step("build"), step("shard"), forward(), observe({"recorded", "output", "parameters"})});
  const Simulated run(c);
  EXPECT_EQ(run.entry("recorded")["values"], Json({{"in", "float32"}, {"out", "float32"}}));
  EXPECT_EQ(run.tensor("parameters", "l.weight").scalar_type(), at::kFloat);
}

TEST(FullyShard, ReplicasAverageAmongEachOther) {
  CaseInMemory c(4);
  one_weight(c, {1, 2, 3, 6}, Json::object(), "fully_shard");
  c.plan({{"api", "fully_shard"}, {"mesh", {2, 2}}, {"units", Json::array({{{"modules", {""}}}})}})
      .steps(one_backward());
  EXPECT_EQ(gradient(Simulated(c)), 3);
}

TEST(FullyShard, PaddedRowsComeBackInPlace) {
  // Five rows over four ranks: 2, 2, 1 and none. The gradient of row i is the sum of its inputs, the same for
  // every row here.
  CaseInMemory c(4);
  c.model(sdk::linear(2, 5)).parameter("weight", sdk::dyadic({5, 2})).parameter("bias", sdk::dyadic({5}));
  for (int r = 0; r < 4; ++r)
    c.input("x@" + std::to_string(r), at::tensor({1.f * static_cast<float>(r), 4.f}).view({1, 2}));
  c.plan({{"api", "fully_shard"}, {"units", Json::array({{{"modules", {""}}}})}}).steps(one_backward());
  for (const char* order : {"rank", "ring"}) {
    const Simulated run(c, order);
    EXPECT_TRUE(at::equal(run.tensor("gradients", "weight"), at::tensor({1.5f, 4.f}).expand({5, 2})));
    EXPECT_TRUE(at::equal(run.tensor("gradients", "bias"), at::ones({5})));
  }
}

}  // namespace
}  // namespace fsdp_cts::reference
