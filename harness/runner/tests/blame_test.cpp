#include "harness/runner/blame.hpp"

#include <gmock/gmock.h>

#include <deque>

namespace fsdp_cts {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Ranks of one imagined case.
class Ranks {
 public:
  RankSituation& add(RankEnd end, int step, const char* verb, const char* detail = "") {
    RankReport& report = reports_.emplace_back();
    report.rank = static_cast<int>(situations_.size());
    report.end = end;
    report.last_step = step;
    report.last_verb = verb;
    report.detail = detail;
    RankSituation situation;
    situation.report = &report;
    return situations_.emplace_back(situation);
  }
  std::string sentence() const { return blame_sentence({situations_.begin(), situations_.end()}); }

 private:
  std::deque<RankReport> reports_;  // never moved: situations point at them
  std::deque<RankSituation> situations_;
};

TEST(Blame, NobodyWhenAllIsWell) {
  Ranks ranks;
  ranks.add(RankEnd::done, 4, "observe");
  ranks.add(RankEnd::unsupported, -2, "");
  EXPECT_EQ(ranks.sentence(), "");
}

TEST(Blame, ACrashComesBeforeTheErrorsItCauses) {
  Ranks ranks;
  ranks.add(RankEnd::error, 3, "backward", "raised RuntimeError (Connection closed by peer)").failed_at = 0.1;
  RankSituation& crashed = ranks.add(RankEnd::crash, 3, "backward", "was killed by signal 11 (SIGSEGV)");
  crashed.failed_at = 0.2;  // the kernel closes connections before it tells of the end
  crashed.last_collective = "all_gather of 64 bfloat16 (unit \"0\")";
  EXPECT_EQ(
      ranks.sentence(),
      "rank 1 was killed by signal 11 (SIGSEGV) in step 3 (backward); its last known collective was "
      "all_gather of 64 "
      "bfloat16 (unit \"0\"); rank 0 raised RuntimeError (Connection closed by peer) in step 3 (backward)");
}

TEST(Blame, TheFirstErrorCounts) {
  Ranks ranks;
  ranks.add(RankEnd::error, 5, "step", "raised B").failed_at = 0.3;
  ranks.add(RankEnd::error, 2, "shard", "raised A").failed_at = 0.1;
  EXPECT_THAT(ranks.sentence(), HasSubstr("rank 1 raised A in step 2 (shard); rank 0 raised B"));
}

TEST(Blame, RanksWithTheSameStoryAreToldTogether) {
  Ranks ranks;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == 2) {
      ranks.add(RankEnd::protocol_error, 1, "shard", "broke the protocol (wrong_case): …").failed_at = 0;
    } else {
      ranks.add(RankEnd::aborted, 1, "shard");
    }
  }
  EXPECT_THAT(ranks.sentence(), HasSubstr("; ranks 0, 1, 3 was in step 1 (shard)"));
}

TEST(Blame, AmongHungRanksTheOneThatDoesNotWaitForOthers) {
  Ranks ranks;
  ranks.add(RankEnd::hang, 3, "backward").activity = Activity::in_collective;
  ranks.add(RankEnd::hang, 3, "backward").activity = Activity::busy;
  EXPECT_EQ(ranks.sentence(),
            "rank 1 hangs in step 3 (backward) without a sign for 0.0 s, computing; rank 0 hangs in step 3 "
            "(backward) without a "
            "sign for 0.0 s, waiting in a collective");
}

TEST(Blame, AmongHungRanksTheBusyOneWhenNoStackIsKnown) {
  Ranks ranks;
  ranks.add(RankEnd::hang, 3, "backward").activity = Activity::asleep;
  ranks.add(RankEnd::hang, 4, "step").activity = Activity::busy;
  EXPECT_THAT(ranks.sentence(), HasSubstr("rank 1 hangs in step 4 (step)"));
}

TEST(Blame, AmongHungRanksTheOneThatIsLeastFarWhenNothingElseTells) {
  Ranks ranks;
  ranks.add(RankEnd::hang, 5, "step");
  ranks.add(RankEnd::hang, 3, "backward");
  EXPECT_THAT(ranks.sentence(), HasSubstr("rank 1 hangs in step 3 (backward)"));
}

TEST(Blame, ARankThatWentOnLeftACollectiveOut) {
  Ranks ranks;
  ranks.add(RankEnd::hang, 3, "backward").activity = Activity::in_collective;
  ranks.add(RankEnd::done, 7, "observe");
  EXPECT_THAT(ranks.sentence(),
              HasSubstr("rank 1 went on without it: a collective that rank 0 waits for was left out there"));

  Ranks all_wait;
  all_wait.add(RankEnd::hang, 3, "backward").activity = Activity::in_collective;
  all_wait.add(RankEnd::hang, 6, "forward").activity = Activity::in_collective;
  EXPECT_THAT(all_wait.sentence(), HasSubstr("rank 1 went on without it"));

  Ranks same_step;
  same_step.add(RankEnd::hang, 3, "backward").activity = Activity::in_collective;
  same_step.add(RankEnd::hang, 3, "backward").activity = Activity::in_collective;
  EXPECT_THAT(same_step.sentence(), Not(HasSubstr("went on")));
}

TEST(Blame, PlacesHaveNamesOfTheirOwn) {
  RankReport report;
  EXPECT_EQ(place(report), "the time before the first step");
  report.last_verb = "bye";
  EXPECT_EQ(place(report), "bye");
  report.last_step = -1;
  EXPECT_EQ(place(report), "the rendezvous");
  report.last_step = 2;
  report.last_verb = "shard";
  EXPECT_EQ(place(report), "step 2 (shard)");
}

}  // namespace
}  // namespace fsdp_cts
