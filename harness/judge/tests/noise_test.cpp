// What the noise of a tensor allows and what it does not.
#include "harness/judge/noise.hpp"

#include <gtest/gtest.h>

#include "harness/judge/tests/hand_made.hpp"

namespace fsdp_cts {
namespace {

const Place weight{HandMade::after_step, "parameters", "model", "weight", {}};
const Place bias{HandMade::after_step, "parameters", "model", "bias", {}};

const char* within_tolerance =
    R"([{"equal": {"what": ["parameters"], "to": ["reference", "golden"], "tolerance": "upstream"}, "model": "model"}])";

// The reference's evidence with one element of the weight moved.
Evidence moved(const Evidence& native, std::int64_t index, double by) {
  Evidence other = native;
  HostTensor& tensor = other.values.at(weight).tensor;
  set_element(tensor, index, tensor.element(index) + by);
  return other;
}

HandMade noisy(double noise) {
  HandMade made;
  made.a_case.lane = Lane::tolerance;
  const Evidence other = moved(made.reference.evidence, 5, noise);
  made.noise = Noise(made.reference.evidence, {&other});
  return made;
}

// The testee's weight[1, 1], 4 in both truths, held by rank 0.
void spoil(HandMade& made, double value) {
  set_element(made.tensor(HandMade::after_step, 0, "parameters/weight"), 3, value);
}

TEST(Noise, IsTheLargestDifferenceOfAnyElementInAnyRun) {
  HandMade made;
  const Evidence& native = made.reference.evidence;
  const Evidence first = moved(native, 2, 0x1p-9), second = moved(native, 7, -0x1p-8);
  const Noise noise(native, {&first, &second});
  EXPECT_EQ(noise.at(weight), 0x1p-8);
  EXPECT_EQ(noise.at(bias), 0);
  EXPECT_EQ(noise.at({HandMade::after_step, "parameters", "model", "unheard", {}}), 0);
}

TEST(Noise, CountsUpToAShareOfWhatWasObservedTogether) {
  HandMade made;
  const Evidence& native = made.reference.evidence;
  const Evidence other = moved(native, 2, 4);
  const Noise noise(native, {&other});
  EXPECT_EQ(noise.at(weight), 12 * noisy_share);  // the bias' largest element
  EXPECT_EQ(noise.scales().at(weight).noise, 4);
  EXPECT_EQ(noise.scales().at(weight).observed, 12);
}

TEST(Noise, IsLookedUpByRankOrForAll) {
  Evidence native, other;
  const Place loss{3, "loss", "", "", {}};
  for (int rank = 0; rank < 2; ++rank) {
    Place of_rank = loss;
    of_rank.rank = rank;
    native.values[of_rank].tensor = make_tensor(DType::float32, {}, {1});
    other.values[of_rank].tensor = make_tensor(DType::float64, {}, {1.0 + (rank + 1) * 0x1p-12});
  }
  const Noise by_rank(native, {&other});
  EXPECT_EQ(by_rank.at({3, "loss", "", "", 0}), 0x1p-12);
  EXPECT_EQ(by_rank.at({3, "loss", "", "", 1}), 0x1p-11);
  EXPECT_EQ(by_rank.at(loss), 0x1p-11);

  HandMade made;
  const Evidence shifted = moved(made.reference.evidence, 0, 0x1p-8);
  Place on_rank = weight;
  on_rank.rank = 1;
  EXPECT_EQ(Noise(made.reference.evidence, {&shifted}).at(on_rank), 0x1p-8);
}

TEST(Noise, LeavesOutWhatCannotBeCompared) {
  HandMade made;
  const Evidence& native = made.reference.evidence;
  Evidence other = moved(native, 2, 0x1p-8);
  set_element(other.values.at(weight).tensor, 3, std::numeric_limits<double>::infinity());
  EXPECT_EQ(Noise(native, {&other}).at(weight), 0x1p-8);
  other.values.at(weight).none = true;
  EXPECT_EQ(Noise(native, {&other}).at(weight), 0);
  other.values.erase(weight);
  EXPECT_EQ(Noise(native, {&other}).at(weight), 0);
}

TEST(Noise, AllowsSixteenTimesItself) {
  HandMade made = noisy(0x1p-10);
  spoil(made, 4 + 15 * 0x1p-10);
  const Verdict verdict = made.judged(within_tolerance);
  EXPECT_EQ(verdict.kind, VerdictKind::pass) << verdict.summary;
  EXPECT_NEAR(verdict.max_noise, 15, 0.01);
  EXPECT_FALSE(verdict.noise_due);
  spoil(made, 4 + 17 * 0x1p-10);
  const Verdict beyond = expect_code(made, within_tolerance, "value");
  EXPECT_NE(beyond.summary.find("allowed: upstream 1.5e-05, noise 16 x 0.00098"), std::string::npos)
      << beyond.summary;
}

TEST(Noise, IsAskedForOnlyWhereAVerdictHangsOnIt) {
  HandMade made = noisy(0x1p-10);
  made.noise.reset();
  EXPECT_FALSE(made.judged(within_tolerance).noise_due);
  spoil(made, 4.00001);  // upstream allows 1.5e-5
  EXPECT_FALSE(made.judged(within_tolerance).noise_due);
  spoil(made, 4.001);
  EXPECT_TRUE(expect_code(made, within_tolerance, "value").noise_due);
}

TEST(Noise, DecidesWhetherTheTruthsAgree) {
  HandMade made = noisy(0x1p-10);
  HostTensor& golden = made.golden.evidence.values.at(weight).tensor;
  set_element(golden, 3, 4 + 15 * 0x1p-10);
  expect_pass(made, within_tolerance);
  set_element(golden, 3, 4 + 17 * 0x1p-10);
  expect_code(made, within_tolerance, "truths_disagree", VerdictKind::setup_error);
  made.noise.reset();
  EXPECT_TRUE(expect_code(made, within_tolerance, "truths_disagree", VerdictKind::setup_error).noise_due);
}

TEST(Noise, OfOneTensorExcusesNoOther) {
  HandMade made = noisy(0x1p-4);
  set_element(made.tensor(HandMade::after_step, 0, "parameters/bias"), 0, 9.001);  // 9 in both truths
  EXPECT_EQ(expect_code(made, within_tolerance, "value").divergence["parameter"], "bias");
}

TEST(Noise, NeitherExactLaneNorExactToleranceKnowsIt) {
  HandMade made = noisy(0x1p-10);
  spoil(made, 4 + 0x1p-10);
  const char* exact =
      R"([{"equal": {"what": ["parameters"], "to": ["reference"], "tolerance": "exact"}, "model": "model"}])";
  EXPECT_FALSE(expect_code(made, exact, "value").noise_due);
  made.a_case.lane = Lane::exact;
  EXPECT_FALSE(expect_code(made, within_tolerance, "value").noise_due);
  expect_code(made, R"([{"equal": {"what": ["parameters"], "to": ["reference"]}, "model": "model"}])",
              "value");
}

TEST(Noise, HidesNoWrongDtypeShapeOrAbsence) {
  HandMade made = noisy(1);
  made.tensor(HandMade::after_backward, 0, "loss") = make_tensor(DType::bfloat16, {}, {10});
  expect_code(made, R"([{"equal": {"what": ["loss"], "to": ["reference"]}}])", "dtype");
  spoil(made, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(made.judged(within_tolerance).kind, VerdictKind::fail);
}

TEST(Noise, ACaseThatDrownsInItIsRefused) {
  HandMade made;
  made.a_case.lane = Lane::tolerance;
  made.a_case.expect = Json::parse(R"([{"equal": {"what": ["parameters"], "to": ["golden"]}}])");
  const Evidence& native = made.reference.evidence;  // the largest parameter is 12
  const Evidence quiet = moved(native, 5, 0.011), loud = moved(native, 5, 0.013);
  EXPECT_FALSE(first_noisy(made.a_case, Noise(native, {&quiet})));
  const auto noisy = first_noisy(made.a_case, Noise(native, {&loud}));
  ASSERT_TRUE(noisy);
  EXPECT_EQ(noisy->code, "noisy");
  EXPECT_EQ(noisy->divergence["parameter"], "weight");
  EXPECT_EQ(noisy->divergence["observed"], 12.0);

  // What is compared bit for bit, or not at all, may be as noisy as it likes; so may 16-bit dtypes.
  made.a_case.expect =
      Json::parse(R"([{"equal": {"what": ["parameters"], "to": ["golden"], "tolerance": "exact"}}])");
  EXPECT_FALSE(first_noisy(made.a_case, Noise(native, {&loud})));
  made.a_case.expect = Json::parse(R"([{"equal": {"what": ["loss"], "to": ["golden"]}}])");
  EXPECT_FALSE(first_noisy(made.a_case, Noise(native, {&loud})));
  made.a_case.expect = Json::parse(R"([{"equal": {"what": ["parameters"], "to": ["golden"]}}])");
  made.a_case.plans["model"]["mixed_precision"] = {{"param_dtype", "bfloat16"}};
  EXPECT_FALSE(first_noisy(made.a_case, Noise(native, {&loud})));
}

TEST(Noise, GradientsThatCancelAreJudgedByTheScaleOfTheOthers) {
  HandMade made;
  made.a_case.lane = Lane::tolerance;
  made.set_truths(weight, make_tensor(DType::float32, {4, 2}, std::vector<double>(8, 0)));
  const Evidence& native = made.reference.evidence;
  const Evidence other = moved(native, 0, 0x1p-10);
  made.noise = Noise(native, {&other});
  for (int rank = 0; rank < 2; ++rank) {
    for (std::int64_t i = 0; i < 4; ++i)
      set_element(made.tensor(HandMade::after_step, rank, "parameters/weight"), i, 0x1p-8);
  }
  expect_pass(made, within_tolerance);
  spoil(made, 0.5);  // a gradient that should have cancelled
  expect_code(made, within_tolerance, "value");
}

}  // namespace
}  // namespace fsdp_cts
