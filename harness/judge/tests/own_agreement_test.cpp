// What a testee says about itself: who is trained, where literal pieces lie at any time, and that two sets of
// its own observations agree.
#include <gtest/gtest.h>

#include "harness/judge/tests/hand_made.hpp"

namespace fsdp_cts {
namespace {

Verdict judged(HandMade& made, const char* expect) {
  return made.judged(expect);
}

TEST(RequiresGrad, EveryRanksShareSaysSo) {
  HandMade made;
  const char* trained =
      R"([{"requires_grad": {"match": "weight", "is": true, "at_least": 2}, "model": "model"}])";
  EXPECT_EQ(judged(made, trained).kind, VerdictKind::pass);
  made.entry(HandMade::after_step, 1, "parameters")["items"][0]["requires_grad"] = false;
  const Verdict verdict = judged(made, trained);
  EXPECT_EQ(verdict.code, "requires_grad") << verdict.summary;
  EXPECT_EQ(verdict.divergence["parameter"], "weight");
  EXPECT_EQ(verdict.divergence["rank"], 1);
  EXPECT_EQ(verdict.divergence["actual"], false);
}

TEST(RequiresGrad, TooFewOrNoneProveNothing) {
  HandMade made;
  EXPECT_EQ(judged(made, R"([{"requires_grad": {"match": "weight", "is": true, "at_least": 9}}])").code,
            "too_few");
  const Verdict nobody = judged(made, R"([{"requires_grad": {"match": "nobody", "is": true}}])");
  EXPECT_EQ(nobody.kind, VerdictKind::unresolved);
  EXPECT_EQ(nobody.code, "nothing_observed");
}

TEST(Layout, LiteralPiecesHoldBetweenForwardAndBackwardToo) {
  HandMade made;
  const char* literal =
      R"([{"layout": {"pieces": {"weight": [[0, 0, 4], [1, 4, 4]]}}, "label": "after_step"}])";
  EXPECT_EQ(judged(made, literal).kind, VerdictKind::pass);
  // As if no backward had followed the forward.
  made.a_case.program[5]["verb"] = "mode";
  EXPECT_EQ(judged(made, literal).kind, VerdictKind::pass);
  const Verdict wrong =
      judged(made, R"([{"layout": {"pieces": {"weight": [[0, 0, 5], [1, 5, 3]]}}, "label": "after_step"}])");
  EXPECT_EQ(wrong.code, "layout") << wrong.summary;
}

TEST(Match, TwoLabelsAgree) {
  HandMade made;
  made.a_case.program[HandMade::of_other]["model"] = "model";
  for (int rank = 0; rank < 2; ++rank) {
    Observation& later = made.observation(HandMade::of_other, rank);
    later = made.observation(HandMade::after_step, rank);
    later.step = HandMade::of_other;
    Json only = Json::array();
    for (const Json& entry : later.entries)
      if (entry["what"] == "parameters") only.push_back(entry);
    later.entries = only;
  }
  const char* match = R"([{"match": {"what": ["parameters"], "labels": ["after_step", "end"]}}])";
  EXPECT_EQ(judged(made, match).kind, VerdictKind::pass) << judged(made, match).summary;
  set_element(made.tensor(HandMade::of_other, 1, "parameters/bias"), 0, 5);
  const Verdict verdict = judged(made, match);
  EXPECT_EQ(verdict.code, "value") << verdict.summary;
  EXPECT_EQ(verdict.divergence["parameter"], "bias");
}

}  // namespace
}  // namespace fsdp_cts
