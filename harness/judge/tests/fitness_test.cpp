#include "harness/judge/fitness.hpp"

#include <gtest/gtest.h>

#include "harness/judge/tests/hand_made.hpp"

namespace fsdp_cts {
namespace {

HostTensor& gradient(Evidence& evidence, const char* name) {
  return evidence.values.at({HandMade::after_backward, "gradients", "model", name, {}}).tensor;
}

void clear(HostTensor& tensor) {
  std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0});
}

TEST(Fitness, DataThatRoundAreUnfit) {
  HandMade made;
  made.a_case.expect = Json::parse(R"([{"equal": {"what": ["gradients"], "to": ["reference"]}}])");
  const Evidence& native = made.reference.evidence;
  Evidence wide = widened(native);
  EXPECT_FALSE(why_unfit(made.a_case, native, wide));
  set_element(gradient(wide, "weight"), 3, 103.0000000001);
  const auto reason = why_unfit(made.a_case, native, wide);
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->find("not exact"), std::string::npos) << *reason;
}

TEST(Fitness, DataWhoseGradientsDieAreUnfit) {
  HandMade made;
  made.a_case.expect = Json::parse(R"([{"equal": {"what": ["gradients"], "to": ["reference"]}}])");
  Evidence native = made.reference.evidence;
  clear(gradient(native, "bias"));  // one of two is alive
  EXPECT_FALSE(why_unfit(made.a_case, native, widened(native)));
  clear(gradient(native, "weight"));
  const auto reason = why_unfit(made.a_case, native, widened(native));
  ASSERT_TRUE(reason);
  EXPECT_EQ(*reason, "the gradients of 2 of 2 parameters are zero wherever they are observed");
}

TEST(Fitness, WhatMustDifferDiffersInTheReference) {
  HandMade made;
  made.a_case.expect =
      Json::parse(R"([{"differ": {"what": ["parameters"], "between": ["model", "other"]}}])");
  Evidence native = made.reference.evidence;
  for (const char* name : {"weight", "bias"}) {
    native.values[{HandMade::of_other, "parameters", "other", name, {}}] =
        native.values.at({HandMade::after_step, "parameters", "model", name, {}});
  }
  EXPECT_TRUE(why_unfit(made.a_case, native, widened(native)));
  set_element(native.values.at({HandMade::of_other, "parameters", "other", "bias", {}}).tensor, 0, -5);
  EXPECT_FALSE(why_unfit(made.a_case, native, widened(native)));
}

// One rank may add what is small first, another what is large.
TEST(Fitness, NormsOfWhichAPartMayRoundAreUnfit) {
  HandMade made;
  made.a_case.expect = Json::parse(R"([{"equal": {"what": ["gradients"], "to": ["reference"]}}])");
  made.a_case.program[HandMade::after_backward - 1] = {
      {"verb", "clip_grad_norm"}, {"into", "norm"}, {"norm_type", 1}, {"max_norm", 1e9}};
  Evidence native = made.reference.evidence;
  set_element(gradient(native, "bias"), 0, 0.5);
  Value norm = native.values.at({HandMade::after_backward, "gradients", "model", "bias", {}});
  set_element(norm.tensor, 0, 1 << 22);
  native.values[{HandMade::after_backward, "register:norm", "", "", 0}] = norm;
  EXPECT_FALSE(why_unfit(made.a_case, native, widened(native)));
  set_element(gradient(native, "bias"), 0, 0.125);
  const auto reason = why_unfit(made.a_case, native, widened(native));
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->find("register:norm is 4194304"), std::string::npos) << *reason;
}

}  // namespace
}  // namespace fsdp_cts
