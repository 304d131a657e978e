// Every kind of expectation: one hand-made answer that passes and at least one that does not, with the code
// and the divergence it must get.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/judge/tests/hand_made.hpp"

namespace fsdp_cts {
namespace {

const char* equal_all =
    R"([{"equal": {"what": ["loss", "gradients", "parameters"], "to": ["reference", "golden"]}, "clause": "FS-RED-2", "model": "model"}])";

TEST(Equal, PassesAndCounts) {
  HandMade made;
  const Verdict verdict = made.judged(equal_all);
  ASSERT_EQ(verdict.kind, VerdictKind::pass) << verdict.summary;
  EXPECT_EQ(verdict.counts.elements, 2 + 12 + 12);
  EXPECT_EQ(verdict.counts.exact_elements, 26);
  EXPECT_EQ(verdict.counts.tensors, 2 + 2 + 2);
  EXPECT_EQ(verdict.counts.collectives, 3);
  EXPECT_EQ(verdict.counts.ranks, 2);
  EXPECT_EQ(verdict.max_ulp, 0);
}

TEST(Equal, NamesTheFirstDivergenceAndWhatBothTruthsSaid) {
  HandMade made;
  set_element(made.tensor(HandMade::after_backward, 1, "gradients/weight"), 1,
              105.5);                                                          // element [2, 1], truth 105
  set_element(made.tensor(HandMade::after_step, 0, "parameters/bias"), 0, 0);  // later: not the first
  const Verdict verdict = expect_code(made, equal_all, "value");
  const Json& divergence = verdict.divergence;
  EXPECT_EQ(divergence["expectation"], "equal");
  EXPECT_EQ(divergence["clause"], "FS-RED-2");
  EXPECT_EQ(divergence["step"], HandMade::after_backward);
  EXPECT_EQ(divergence["verb"], "observe");
  EXPECT_EQ(divergence["iteration"], 0);
  EXPECT_EQ(divergence["label"], "after_backward");
  EXPECT_EQ(divergence["phase"], "backward");
  EXPECT_EQ(divergence["what"], "gradients");
  EXPECT_EQ(divergence["parameter"], "weight");
  EXPECT_EQ(divergence["rank"], 1);
  EXPECT_EQ(divergence["index"], Json({2, 1}));
  EXPECT_EQ(divergence["actual"], 105.5);
  EXPECT_EQ(divergence["expected"], 105.0);
  EXPECT_EQ(divergence["ulp"], 65536.0);  // 0.5 / 2^(6-23)
  EXPECT_EQ(divergence["golden"], 105.0);
  EXPECT_EQ(divergence["reference"], 105.0);
  EXPECT_NE(verdict.summary.find("and 1 more"), std::string::npos) << verdict.summary;
}

TEST(Equal, KeepsWhichElementsDifferAndWhoHoldsThem) {
  HandMade made;
  HostTensor& gradient = made.tensor(HandMade::after_backward, 1, "gradients/weight");
  for (const int element : {0, 1, 3}) set_element(gradient, element, -1);
  const Verdict verdict = expect_code(made, equal_all, "value");
  EXPECT_EQ(verdict.divergence["tensor"],
            Json::parse(R"({"shape": [4, 2], "differing": [[4, 2], [7, 1]], "not_shown": 0,
                            "held": [[0, 0, 4], [1, 4, 4]]})"));
}

TEST(Equal, NamesTheFactorOfASumForAMean) {
  const auto scaled = [](double factor, int elements) {
    HandMade made;
    for (int rank = 0; rank < 2; ++rank) {
      HostTensor& gradient = made.tensor(HandMade::after_backward, rank, "gradients/weight");
      for (std::int64_t i = 0; i < elements; ++i) set_element(gradient, i, factor * gradient.element(i));
    }
    return made.judged(equal_all);
  };
  const Verdict sum = scaled(2, 4);
  EXPECT_EQ(sum.divergence["factor"], 2.0);
  EXPECT_NE(
      sum.summary.find(
          "every differing element is 2 x the expected value (world size 2: a sum where a mean is due?)"),
      std::string::npos)
      << sum.summary;
  EXPECT_NE(scaled(0.5, 4).summary.find("divided once too often?"), std::string::npos);
  EXPECT_NE(scaled(-1, 4).summary.find("is -1 x the expected value"), std::string::npos);
  HandMade one;  // a single element has a factor to everything
  set_element(one.tensor(HandMade::after_backward, 1, "gradients/weight"), 1, 210);
  EXPECT_FALSE(one.judged(equal_all).divergence.contains("factor"));
}

TEST(Equal, ComparesRegistersRankByRank) {
  HandMade made;
  set_element(made.tensor(HandMade::after_backward, 1, "loss"), 0, 10);  // rank 0's loss on rank 1
  const Verdict verdict = expect_code(made, equal_all, "value");
  EXPECT_EQ(verdict.divergence["what"], "loss");
  EXPECT_EQ(verdict.divergence["rank"], 1);
}

TEST(Equal, DtypeIsCheckedUnlessToldNot) {
  HandMade made;
  made.tensor(HandMade::after_backward, 0, "loss") = make_tensor(DType::bfloat16, {}, {10});
  const Verdict verdict =
      expect_code(made, R"([{"equal": {"what": ["loss"], "to": ["reference"]}}])", "dtype");
  EXPECT_EQ(verdict.divergence["actual"], "bfloat16");
  EXPECT_EQ(verdict.divergence["expected"], "float32");
  expect_pass(made, R"([{"equal": {"what": ["loss"], "to": ["reference"], "check_dtype": false}}])");
}

TEST(Equal, ToleranceIsPerDtypeAndReportsUlp) {
  HandMade made;
  set_element(made.tensor(HandMade::after_backward, 0, "loss"), 0, 10.00001);
  const Verdict verdict = made.judged(
      R"([{"equal": {"what": ["loss"], "to": ["reference", "golden"], "tolerance": "upstream"}}])");
  EXPECT_EQ(verdict.kind, VerdictKind::pass) << verdict.summary;
  EXPECT_GT(verdict.max_ulp, 5);
  EXPECT_EQ(verdict.counts.exact_elements, 1);
  expect_code(
      made,
      R"([{"equal": {"what": ["loss"], "to": ["reference", "golden"], "tolerance": {"rtol": 0, "atol": 1e-6}}}])",
      "value");
}

TEST(Equal, ShapeAndMissingValue) {
  HandMade made;
  made.tensor(HandMade::after_backward, 0, "loss") = make_tensor(DType::float32, {1}, {10});
  expect_code(made, R"([{"equal": {"what": ["loss"], "to": ["reference"]}}])", "shape");
  HandMade without;
  without.set_truths({HandMade::after_backward, "gradients", "model", "extra", {}},
                     make_tensor(DType::float32, {1}, {1}));
  const Verdict verdict = expect_code(without, equal_all, "missing_value");
  EXPECT_EQ(verdict.divergence["parameter"], "extra");
}

TEST(Equal, WhatIsTheSameOnAllRanksIsDueFromEach) {
  HandMade made;
  made.set_truths({HandMade::of_other, "parameters", "other", "weight", {}},
                  make_tensor(DType::float32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}));
  made.set_truths({HandMade::of_other, "parameters", "other", "bias", {}},
                  make_tensor(DType::float32, {4}, {9, 10, 11, 12}));
  const char* equal = R"([{"equal": {"what": ["parameters"], "to": ["reference"]}, "model": "other"}])";
  expect_pass(made, equal);
  made.entry(HandMade::of_other, 1, "parameters")["items"].erase(1);
  const Verdict verdict = expect_code(made, equal, "missing_value");
  EXPECT_EQ(verdict.divergence["rank"], 1);
  EXPECT_EQ(verdict.divergence["parameter"], "bias");
}

TEST(Equal, AnAbsentGradientIsNoZeroGradient) {
  HandMade made;
  for (int rank = 0; rank < 2; ++rank) {
    Json& item = made.entry(HandMade::after_backward, rank, "gradients")["items"][1];
    item["none"] = true;
    item["pieces"] = Json::array();
  }
  const Verdict verdict = expect_code(made, equal_all, "none");
  EXPECT_EQ(verdict.divergence["parameter"], "bias");
}

TEST(Equal, TruthsThatDisagreeAccuseNobody) {
  HandMade made;
  set_element(
      made.golden.evidence.values.at({HandMade::after_step, "parameters", "model", "weight", {}}).tensor, 3,
      -1);
  set_element(made.tensor(HandMade::after_step, 0, "parameters/weight"), 3, 77);  // the testee is wrong too
  const Verdict verdict = expect_code(made, equal_all, "truths_disagree", VerdictKind::setup_error);
  EXPECT_EQ(verdict.divergence["index"], Json({1, 1}));
  EXPECT_EQ(verdict.divergence["golden"], -1.0);
  EXPECT_EQ(verdict.divergence["reference"], 4.0);
}

TEST(Equal, ReferenceWithoutTheEntryIsASetupError) {
  HandMade made;
  made.reference.evidence.values.erase({HandMade::after_step, "parameters", "model", "weight", {}});
  expect_code(made, equal_all, "reference_incomplete", VerdictKind::setup_error);
}

TEST(Equal, ANameThatNoTruthHasIsTheTestees) {
  HandMade made;
  for (OwnedTruth* truth : {&made.reference, &made.golden})
    truth->evidence.values.erase({HandMade::after_step, "parameters", "model", "weight", {}});
  expect_code(made, equal_all, "extra_value");
}

TEST(Equal, AnOracleThatFailedIsNotTheTesteesFault) {
  HandMade made;
  made.reference.problem = Finding{VerdictKind::setup_error, "reference_failed", "the reference crashed"};
  set_element(made.tensor(HandMade::after_step, 0, "parameters/weight"), 3, 77);
  expect_code(made, equal_all, "reference_failed", VerdictKind::setup_error);
}

TEST(Equal, AnotherReductionOrderExcludesTheGoldenFromThreeRanksOn) {
  HandMade made;
  made.a_case.world = 2;
  set_element(
      made.golden.evidence.values.at({HandMade::after_step, "parameters", "model", "weight", {}}).tensor, 3,
      -1);
  const char* sensitive =
      R"([{"equal": {"what": ["parameters"], "to": ["reference", "golden"], "order_sensitive": true}, "model": "model"}])";
  expect_code(made, sensitive, "truths_disagree", VerdictKind::setup_error);  // two summands have no order

  HandMade four;
  four.a_case.world = 4;
  for (int rank = 2; rank < 4; ++rank) {
    four.run.ranks.push_back(four.run.ranks[0]);
    four.run.ranks.back().rank = rank;
    for (int step :
         {HandMade::after_backward, HandMade::after_step, HandMade::attempt_end, HandMade::of_other}) {
      Observation copy = four.observation(step, 0);
      copy.rank = rank;
      for (Json& entry : copy.entries) {
        if (!entry.contains("items")) continue;
        for (Json& item : entry["items"]) {
          if (item["sharded"] == true) item["pieces"] = Json::array();
        }
      }
      four.run.observations.push_back(copy);
    }
  }
  for (int rank = 0; rank < 4; ++rank) {
    for (Json& event : four.entry(HandMade::after_step, rank, "trace")["events"]) {
      event["group"] = {0, 1, 2, 3};
      const bool gathers = event["op"] == "all_gather";
      event[gathers ? "in_numel" : "out_numel"] = 3;
    }
  }
  set_element(
      four.golden.evidence.values.at({HandMade::after_step, "parameters", "model", "weight", {}}).tensor, 3,
      -1);
  expect_pass(four, sensitive);
  const TruthCounts truths = four.judged(sensitive).counts.truths;
  EXPECT_EQ(truths.reference, 1);
  EXPECT_EQ(truths.golden, 0);
  EXPECT_EQ(truths.golden_left_out, 1);
  // With nobody else to compare with it is no pass.
  expect_code(
      four,
      R"([{"equal": {"what": ["parameters"], "to": ["golden"], "order_sensitive": true}, "model": "model"}])",
      "no_truth_left", VerdictKind::unresolved);

  HostTensor& shard = four.tensor(HandMade::after_step, 0, "parameters/weight");
  const double right = shard.element(3);
  set_element(shard, 3, 77);
  four.run.hello["reduction_order"] = "rank";
  EXPECT_EQ(expect_code(four, sensitive, "value").summary.find("declare reduction_order"), std::string::npos);
  four.run.hello["reduction_order"] = "unspecified";
  const Verdict undeclared = expect_code(four, sensitive, "value");
  EXPECT_NE(undeclared.summary.find("declare reduction_order"), std::string::npos) << undeclared.summary;
  set_element(shard, 3, right);

  four.run.hello["reduction_order"] = "ring";
  four.reference.reduction_order = "ring";
  expect_code(four, sensitive, "truths_disagree", VerdictKind::setup_error);
}

TEST(Equal, FactsAreComparedToo) {
  HandMade made;
  const char* facts =
      R"([{"equal": {"what": ["recorded"], "to": ["reference", "golden"]}}, {"equal": {"what": ["loss"], "to": ["reference"]}}])";
  expect_pass(made, facts);
  made.entry(HandMade::after_step, 1, "recorded")["values"]["input"] = "float32";
  const Verdict verdict = expect_code(made, facts, "fact");
  EXPECT_EQ(verdict.divergence["rank"], 1);
}

TEST(Equal, ALabelThatNothingCarriesProvesNothing) {
  HandMade made;
  expect_code(made, R"([{"equal": {"what": ["loss"], "to": ["reference"]}, "label": "nowhere"}])",
              "nothing_observed", VerdictKind::unresolved);
}

TEST(Match, TwoInstancesAgree) {
  HandMade made;
  const char* match =
      R"([{"match": {"what": ["parameters"], "between": ["model", "other"], "tolerance": "exact"}}])";
  expect_pass(made, match);
  set_element(made.tensor(HandMade::of_other, 1, "parameters/other/bias"), 2, 5);
  const Verdict verdict = expect_code(made, match, "value");
  EXPECT_EQ(verdict.divergence["parameter"], "bias");
  EXPECT_EQ(verdict.divergence["actual"], 11.0);
  EXPECT_EQ(verdict.divergence["expected"], 5.0);
}

TEST(Differ, MustNotBeEqualAndOnlyTheNamedMay) {
  HandMade made;
  const char* differ = R"([{"differ": {"what": ["parameters"], "between": ["model", "other"]}}])";
  expect_code(made, differ, "not_different");
  for (int rank = 0; rank < 2; ++rank)
    set_element(made.tensor(HandMade::of_other, rank, "parameters/other/bias"), 2, 5);
  expect_pass(made, differ);
  expect_pass(made,
              R"([{"differ": {"what": ["parameters"], "between": ["model", "other"], "only": "^bias$"}}])");
  const Verdict verdict = expect_code(
      made, R"([{"differ": {"what": ["parameters"], "between": ["model", "other"], "only": "^weight$"}}])",
      "value");
  EXPECT_EQ(verdict.divergence["parameter"], "bias");
  // A name that nothing has: nothing was said about anything.
  expect_code(made,
              R"([{"differ": {"what": ["parameters"], "between": ["model", "model"], "only": "^wieght$"}}])",
              "nothing_observed", VerdictKind::unresolved);
}

TEST(Equal, AUnitMustSayWhatTheTruthSays) {
  HandMade made;
  const Place place{HandMade::after_step, "units", "model", "", {}};
  made.reference.evidence.facts[place] = made.entry(HandMade::after_step, 0, "units");
  const char* units = R"([{"equal": {"what": ["units"], "to": ["reference"]}}])";
  expect_pass(made, units);
  for (const char* key : {"class", "parameters"}) {
    HandMade without = made;
    without.entry(HandMade::after_step, 1, "units")["units"][0].erase(key);
    const Verdict verdict = expect_code(without, units, "fact");
    EXPECT_NE(verdict.summary.find(std::string(key) + " is \"left out\""), std::string::npos)
        << verdict.summary;
  }
  HandMade without = made;
  without.entry(HandMade::after_step, 0, "units")["units"][0]["settings"].erase("reshard_after_forward");
  expect_code(without, units, "fact");
  without.entry(HandMade::after_step, 0, "units")["units"][0].erase("settings");
  expect_code(without, units, "fact");
  // What the truth does not know is nobody's business.
  made.entry(HandMade::after_step, 0, "units")["units"][0]["settings"]["own"] = 1;
  expect_pass(made, units);
}

TEST(Dtype, EveryTensorAndEnoughOfThem) {
  HandMade made;
  expect_pass(made, R"([{"dtype": {"what": ["parameters", "gradients"], "is": "float32", "at_least": 12}}])");
  const Verdict few =
      expect_code(made, R"([{"dtype": {"what": ["gradients"], "is": "float32", "at_least": 5}}])", "too_few");
  EXPECT_EQ(few.divergence["actual"], 4);
  const Verdict verdict = expect_code(made, R"([{"dtype": {"what": ["loss"], "is": "bfloat16"}}])", "dtype");
  EXPECT_EQ(verdict.divergence["actual"], "float32");
  EXPECT_EQ(verdict.divergence["what"], "loss");
}

TEST(Recorded, DtypesAndAbsence) {
  HandMade made;
  expect_pass(made, R"([{"recorded": {"input": "bfloat16", "never": null}}])");
  const Verdict verdict = expect_code(made, R"([{"recorded": {"input": "float16"}}])", "recorded_dtype");
  EXPECT_EQ(verdict.divergence["parameter"], "input");
  EXPECT_EQ(verdict.divergence["actual"], "bfloat16");
  expect_code(made, R"([{"recorded": {"input": null}}])", "recorded_dtype");
}

TEST(SeenParameters, NamesShapesOrder) {
  HandMade made;
  expect_pass(made, R"([{"seen_parameters": {"as": "body", "is": [["weight", [4, 2]], ["bias", [4]]]}}])");
  expect_code(made, R"([{"seen_parameters": {"as": "body", "is": [["bias", [4]], ["weight", [4, 2]]]}}])",
              "seen_parameters");
}

}  // namespace
}  // namespace fsdp_cts
