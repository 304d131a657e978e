// What a report holds besides its verdict: output, stacks, the last collective, observations.
#include <gmock/gmock.h>

#include <chrono>

#include "harness/runner/tests/session_fixture.hpp"

namespace fsdp_cts {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;
using ::testing::StartsWith;

class Evidence : public SessionTest {
 protected:
  SessionOptions hasty() const {
    SessionOptions result = options();
    result.limits.deadlines.verb = std::chrono::seconds(1);
    return result;
  }
  static Case traced_case() {
    Case a_case = small_case("traced");
    a_case.models = {
        {"model", {{"type", "Linear"}, {"class", "Linear"}, {"in", 3}, {"out", 5}, {"bias", true}}}};
    a_case.program[2] = {
        {"verb", "observe"}, {"what", {"parameters", "trace"}}, {"iteration", 7}, {"label", "early"}};
    return a_case;
  }
};

TEST_F(Evidence, MuchOutputIsCappedAndDoesNotStopTheRank) {
  const CaseRun run =
      this->run(fault_testee({"--fault", "noise", "--megabytes", "200"}), {small_case("a")}).runs[0];
  EXPECT_THAT(run, all_done);
  const Limits limits;
  EXPECT_THAT(run.ranks[1].captured_output, SizeIs(Lt(limits.output_head + limits.output_tail + 100)));
  EXPECT_THAT(run.ranks[1].captured_output,
              HasSubstr(std::to_string((200 << 20) - (64 << 10)) + " bytes left out"));
  EXPECT_EQ(run.ranks[0].captured_output, "");
}

TEST_F(Evidence, OutputThatIsNoTextIsShownAsBytes) {
  const CaseRun run = this->run(fault_testee({"--fault", "noise_ff"}), {small_case("a")}).runs[0];
  EXPECT_THAT(run, all_done);
  EXPECT_THAT(run.ranks[1].captured_output, AllOf(StartsWith("\\xFF\\xFF"), EndsWith("\\xFF")));
}

TEST_F(Evidence, MemoryThatNobodyWroteIsNotZero) {
  const CaseRun run = this->run(fault_testee({"--fault", "unwritten"}), {small_case("a")}).runs[0];
  EXPECT_THAT(run, all_done);
  EXPECT_EQ(run.ranks[1].captured_output, "3.00392\n");
}

TEST_F(Evidence, FindingsOfADeviceComeWithTheirRankAndStep) {
  const CaseRun run = this->run(fault_testee({"--fault", "finding"}), {small_case("a")}).runs[0];
  EXPECT_THAT(run, all_done);
  ASSERT_THAT(run.findings, SizeIs(1));
  EXPECT_EQ(run.findings[0].rank, 1);
  EXPECT_EQ(run.findings[0].step, 1);
  EXPECT_EQ(run.findings[0].code, "stream_race");
  EXPECT_EQ(run.findings[0].message["text"], "a race");
}

TEST_F(Evidence, TheUseOfADeviceComesWithItsRankAndStep) {
  const CaseRun run = this->run(fault_testee({"--fault", "use"}), {small_case("a")}).runs[0];
  EXPECT_THAT(run, all_done);
  ASSERT_THAT(run.uses, SizeIs(1));
  EXPECT_EQ(run.uses[0].rank, 1);
  EXPECT_EQ(run.uses[0].step, 1);
  EXPECT_EQ(run.uses[0].message["peak_bytes"], 7);
}

TEST_F(Evidence, FindingsWithoutEndAreCapped) {
  const Outcome outcome = run(fault_testee({"--fault", "finding_flood", "--when", "racing"}),
                              {small_case("racing"), small_case("quiet")});
  EXPECT_THAT(outcome.runs[0].findings, SizeIs(256));
  EXPECT_THAT(outcome.runs[1].findings, SizeIs(0));
}

TEST_F(Evidence, OutputBelongsToTheCaseItCameIn) {
  const Outcome outcome = run(fault_testee({"--fault", "noise_ff", "--when", "noisy"}),
                              {small_case("noisy"), small_case("quiet")});
  EXPECT_EQ(outcome.runs[1].ranks[1].captured_output, "");
}

TEST_F(Evidence, ARankThatShoutsForEverMeetsItsDeadline) {
  const CaseRun run =
      this->run(fault_testee({"--fault", "noise_for_ever"}), {small_case("a")}, hasty()).runs[0];
  EXPECT_EQ(run.ranks[1].end, RankEnd::hang);
  EXPECT_THAT(run.blame, StartsWith("rank 1 hangs in step 1 (shard)"));
}

TEST_F(Evidence, TheHungRankThatIsNotInACollectiveIsToBlame) {
  for (const char* fault : {"hang", "hang_busy"}) {
    const CaseRun run = this->run(fault_testee({"--fault", fault, "--rank", "1", "--peers-wait"}),
                                  {small_case("a", 3)}, hasty())
                            .runs[0];
    EXPECT_THAT(run.blame, StartsWith("rank 1 hangs in step 1 (shard)"));
    EXPECT_THAT(run.blame, HasSubstr("; ranks 0, 2 hangs in step 1 (shard)"));
    EXPECT_THAT(run.blame, EndsWith("waiting in a collective"));
    EXPECT_THAT(run.ranks[0].stacks, HasSubstr("waitRecv"));
  }
}

TEST_F(Evidence, ARankThatSkipsACollectiveIsNamed) {
  const CaseRun run =
      this->run(fault_testee({"--fault", "skip_collective", "--peers-wait"}), {small_case("a")}, hasty())
          .runs[0];
  EXPECT_EQ(run.ranks[0].end, RankEnd::hang);
  EXPECT_EQ(run.ranks[1].end, RankEnd::done);
  EXPECT_THAT(run.blame,
              HasSubstr("rank 1 went on without it: a collective that rank 0 waits for was left out there"));
}

TEST_F(Evidence, TheLastCollectiveIsNamed) {
  const CaseRun run = this->run(fault_testee({"--fault", "sigkill", "--step", "3"}), {traced_case()}).runs[0];
  EXPECT_THAT(run.blame,
              HasSubstr("its last known collective was reduce_scatter of 64 float32 (unit \"layers.1\")"));
}

TEST_F(Evidence, ObservationsCarryTheirTensors) {
  const CaseRun run = this->run(fault_testee({}), {traced_case()}).runs[0];
  ASSERT_THAT(run.observations, SizeIs(4));  // two observe steps on two ranks
  for (const Observation& observation : run.observations) {
    if (observation.step != 2) continue;
    EXPECT_EQ(observation.iteration, 7);
    EXPECT_EQ(observation.label, "early");
    const Json& items = observation.entries[0]["items"];
    ASSERT_THAT(items, SizeIs(2));
    // weight [5, 3] over two ranks: three rows and two.
    EXPECT_EQ(observation.tensors.at("weight").numel(), observation.rank == 0 ? 9 : 6);
    EXPECT_EQ(items[1]["pieces"][0]["offset"], observation.rank == 0 ? 0 : 9);
  }
  EXPECT_EQ(run.hello["implementation"]["name"], "fault_testee");
}

}  // namespace
}  // namespace fsdp_cts
