#include "harness/judge/exactness.hpp"

#include <gtest/gtest.h>

#include "harness/judge/reference_key.hpp"
#include "harness/judge/tests/hand_made.hpp"

namespace fsdp_cts {
namespace {

TEST(Exactness, EqualAfterWideningIsProof) {
  HandMade made;
  made.a_case.expect = Json::parse(R"([{"equal": {"what": ["parameters"]}}])");
  Evidence wide = widened(made.reference.evidence);
  EXPECT_FALSE(first_inexact(made.a_case, made.reference.evidence, wide));

  set_element(wide.values.at({HandMade::after_step, "parameters", "model", "weight", {}}).tensor, 5,
              6.0000000001);
  const auto inexact = first_inexact(made.a_case, made.reference.evidence, wide);
  ASSERT_TRUE(inexact);
  EXPECT_EQ(inexact->code, "inexact");
  EXPECT_EQ(inexact->divergence["parameter"], "weight");
  EXPECT_EQ(inexact->divergence["index"], Json({2, 1}));

  made.a_case.expect =
      Json::parse(R"([{"equal": {"what": ["loss"]}}])");  // what nobody compares need not be exact
  EXPECT_FALSE(first_inexact(made.a_case, made.reference.evidence, wide));
}

TEST(ReferenceKey, ForgetsWhatChangesNoNumber) {
  HandMade a, b;
  a.a_case.program = Json::parse(R"([{"verb": "forward", "line": 3}])");
  b.a_case.program = Json::parse(R"([{"verb": "forward", "line": 9}])");
  b.a_case.plans["model"]["units"][0]["reshard_after_forward"] = 2;
  b.a_case.plans["model"]["units"][0]["backward_prefetch"] = "BACKWARD_POST";
  EXPECT_EQ(reference_key(a.a_case, "rank", "native"), reference_key(b.a_case, "rank", "native"));
  EXPECT_NE(reference_key(a.a_case, "rank", "native"), reference_key(a.a_case, "ring", "native"));
  EXPECT_NE(reference_key(a.a_case, "rank", "native"), reference_key(a.a_case, "rank", "float64"));
  b.a_case.plans["model"]["units"][0]["mixed_precision"] = {{"param_dtype", "float16"}};
  EXPECT_NE(reference_key(a.a_case, "rank", "native"), reference_key(b.a_case, "rank", "native"));
}

TEST(ReferenceKey, KeepsSettingsThatAreCompared) {
  HandMade a, b;
  b.a_case.plans["model"]["units"][0]["reshard_after_forward"] = 2;
  // The hand-made program has an attempt, whose error may name a setting.
  EXPECT_NE(reference_key(a.a_case, "rank", "native"), reference_key(b.a_case, "rank", "native"));
  for (HandMade* each : {&a, &b})
    each->a_case.program = Json::parse(R"([{"verb": "set_reshard_after_backward", "value": false}])");
  EXPECT_NE(reference_key(a.a_case, "rank", "native"), reference_key(b.a_case, "rank", "native"));
  for (HandMade* each : {&a, &b}) each->a_case.program = Json::parse(R"([{"verb": "forward"}])");
  EXPECT_EQ(reference_key(a.a_case, "rank", "native"), reference_key(b.a_case, "rank", "native"));
  for (HandMade* each : {&a, &b})
    each->a_case.expect = Json::parse(R"([{"equal": {"what": ["units"], "to": ["reference"]}}])");
  EXPECT_NE(reference_key(a.a_case, "rank", "native"), reference_key(b.a_case, "rank", "native"));
}

}  // namespace
}  // namespace fsdp_cts
