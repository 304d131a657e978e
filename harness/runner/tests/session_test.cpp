// The session as a whole: who is started when, what is kept warm, what becomes of a testee that cannot be
// started at all.
#include "harness/runner/session.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "harness/runner/tests/session_fixture.hpp"

namespace fsdp_cts {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SessionRuns : public SessionTest {};

TEST_F(SessionRuns, RanksServeOneCaseAfterTheOther) {
  const StartLog log;
  const Outcome outcome =
      run(log.noting("$RANK/$WORLD_SIZE"), {small_case("a"), small_case("b"), small_case("c")});
  EXPECT_THAT(outcome.runs, Each(all_done));
  EXPECT_THAT(log.lines(), ElementsAre("0/2", "1/2"));
  EXPECT_THAT(outcome.ended_badly, IsEmpty());
}

TEST_F(SessionRuns, RanksAreReplacedAfterAnythingButACleanEnd) {
  const StartLog log;
  const Outcome outcome = run(log.noting("$RANK", "--fault exception --when bad"),
                              {small_case("a"), small_case("bad"), small_case("c"), small_case("d")});
  EXPECT_THAT(log.lines(), ElementsAre("0", "0", "1", "1"));
  EXPECT_THAT(outcome.runs[3], all_done);
}

Case case_that_ends_rank(int rank) {
  Case a_case = small_case("bad");
  a_case.program[1] = {{"verb", "end_process"}, {"ranks", {rank}}};
  return a_case;
}

TEST_F(SessionRuns, ARankThatTheProgramEndsHasNotCrashedAndTheGroupIsReplaced) {
  const StartLog log;
  const Outcome outcome = run(log.noting("$RANK", "--fault sigkill --when bad"),
                              {small_case("a"), case_that_ends_rank(1), small_case("c")});
  EXPECT_THAT(outcome.runs, Each(all_done));
  EXPECT_EQ(outcome.runs[1].ranks[1].last_step, 1);
  EXPECT_EQ(outcome.runs[1].ranks[0].last_step, 4);
  EXPECT_THAT(log.lines(), ElementsAre("0", "0", "1", "1"));
  EXPECT_THAT(outcome.ended_badly, IsEmpty());
}

TEST_F(SessionRuns, ARankThatEndsWhereTheProgramEndsAnotherHasCrashed) {
  const Outcome outcome =
      run(fault_testee({"--fault", "sigkill", "--when", "bad"}), {case_that_ends_rank(0)});
  EXPECT_EQ(outcome.runs[0].ranks[1].end, RankEnd::crash);
}

TEST_F(SessionRuns, UnsupportedByAllIsACleanEnd) {
  const StartLog log;
  const Outcome outcome = run(log.noting("$RANK", "--fault unsupported --rank -1 --when odd"),
                              {small_case("a"), small_case("odd"), small_case("c")});
  EXPECT_THAT(outcome.runs[1].ranks, Each(Field(&RankReport::end, RankEnd::unsupported)));
  EXPECT_EQ(outcome.runs[1].ranks[0].detail, "it is faulty on purpose");
  EXPECT_THAT(log.lines(), SizeIs(2));
}

TEST_F(SessionRuns, UnsupportedByAllAtTheSameStepIsACleanEndToo) {
  const StartLog log;
  const Outcome outcome = run(log.noting("$RANK", "--fault late_unsupported --rank -1 --step 4 --when odd"),
                              {small_case("a"), small_case("odd"), small_case("c")});
  EXPECT_THAT(outcome.runs[1].ranks, Each(Field(&RankReport::end, RankEnd::unsupported)));
  EXPECT_EQ(outcome.runs[1].ranks[1].detail, "it found out late");
  EXPECT_THAT(outcome.runs[2], all_done);
  EXPECT_THAT(log.lines(), SizeIs(2));
}

TEST_F(SessionRuns, AfterAHangTheOtherCasesOfItsScenarioGetAShortDeadline) {
  EXPECT_EQ(short_deadline(0.1).count(), 5);
  EXPECT_EQ(short_deadline(3).count(), 15);
  std::vector<Case> cases;
  for (const char* id : {"first hangs", "second hangs", "third"}) cases.push_back(small_case(id, 1));
  SessionOptions one = options();
  one.jobs = 1;
  one.limits.deadlines.verb = std::chrono::seconds(7);
  const Outcome outcome =
      run(fault_testee({"--fault", "hang", "--rank", "0", "--when", "hangs"}), cases, one);
  EXPECT_GE(outcome.runs[0].seconds.count(), 7);
  EXPECT_THAT(outcome.runs[0].blame, ::testing::Not(HasSubstr("instead of")));
  EXPECT_LT(outcome.runs[1].seconds.count(), 7);
  EXPECT_THAT(outcome.runs[1].blame,
              HasSubstr("; a step had 5 s instead of 7 s, because first hangs hung before"));
  EXPECT_THAT(outcome.runs[2], all_done);
}

TEST_F(SessionRuns, WhatACompilerIsNeededForHasTenTimesTheDeadlines) {
  std::vector<Case> cases = {small_case("compiled hangs", 1)};
  cases[0].requires_ = {"compiler"};
  SessionOptions hasty = options();
  hasty.limits.deadlines.verb = std::chrono::milliseconds(300);
  const Outcome outcome = run(fault_testee({"--fault", "hang", "--rank", "0"}), cases, hasty);
  EXPECT_GE(outcome.runs[0].seconds.count(), 3);
  EXPECT_EQ(outcome.runs[0].ranks[0].end, RankEnd::hang);
}

TEST_F(SessionRuns, EveryWorldHasItsOwnRanksOneWorldAfterTheOther) {
  const StartLog log;
  SessionOptions one = options();
  one.jobs = 1;
  const Outcome outcome =
      run(log.noting("$RANK/$WORLD_SIZE"),
          {small_case("a", 1), small_case("b", 4), small_case("c", 1), small_case("d", 4)}, one);
  EXPECT_THAT(outcome.runs, Each(all_done));
  EXPECT_THAT(log.lines(), ElementsAre("0/1", "0/4", "1/4", "2/4", "3/4"));
}

TEST_F(SessionRuns, WarmRanksServeTheNextRunOfTheSession) {
  const StartLog log;
  const Testee testee = log.noting("$RANK");
  const Case a_case = small_case("a");
  int completed = 0;
  Session session(options());
  for (int i = 0; i < 3; ++i)
    session.run({{&testee, &a_case, {}}}, [&](const Job&, CaseRun&&) { ++completed; });
  session.close();
  EXPECT_EQ(completed, 3);
  EXPECT_THAT(log.lines(), SizeIs(2));
}

TEST_F(SessionRuns, SeveralGroupsWorkSideBySide) {
  const StartLog log;
  std::vector<Case> cases;
  for (int i = 0; i < 40; ++i) cases.push_back(small_case("case" + std::to_string(i)));
  SessionOptions three = options();
  three.jobs = 3;
  EXPECT_THAT(run(log.noting("$RANK"), cases, three).runs, Each(all_done));
  EXPECT_THAT(log.lines(), SizeIs(6));
}

TEST_F(SessionRuns, TheOracleIsOneProcessWithARoleOfItsOwn) {
  const StartLog log;
  Testee oracle =
      log.noting("$FSDP_CTS_ROLE/$RANK/$WORLD_SIZE", "--rank 0 --fault observation_of_other_rank");
  oracle.oracle = true;
  const Testee testee = log.noting("-$FSDP_CTS_ROLE-");
  const Case a_case = small_case("a", 4);
  std::vector<CaseRun> runs;
  Session session(options());
  session.run(
      {{&oracle, &a_case, {{"reduction_order", "rank"}, {"precision", "native"}}}, {&testee, &a_case, {}}},
      [&](const Job&, CaseRun&& run) { runs.push_back(std::move(run)); });
  session.close();
  EXPECT_THAT(runs,
              AllOf(SizeIs(2), Each(all_done)));  // for the oracle any rank in an observation is in order
  EXPECT_THAT(log.lines(), ElementsAre("--", "--", "--", "--", "oracle/0/1"));
}

TEST_F(SessionRuns, AnAbsentProgramIsNamed) {
  Testee testee;
  testee.command = {"/no/such/testee"};
  const CaseRun run = this->run(testee, {small_case("a")}).runs[0];
  EXPECT_EQ(run.ranks[0].end, RankEnd::not_started);
  EXPECT_EQ(run.ranks[0].detail_code, "not_found");
  EXPECT_EQ(run.ranks[1].end, RankEnd::aborted);
  EXPECT_THAT(run.blame, HasSubstr("cannot run \"/no/such/testee\": No such file or directory"));
}

TEST_F(SessionRuns, AProgramThatMayNotBeExecutedIsNamed) {
  Testee testee;
  testee.command = {"/etc/passwd"};
  const CaseRun run = this->run(testee, {small_case("a")}).runs[0];
  EXPECT_EQ(run.ranks[0].detail_code, "not_executable");
  EXPECT_THAT(run.blame, HasSubstr("execute permission"));
}

TEST_F(SessionRuns, SilenceInsteadOfHelloEndsWithTheStartDeadline) {
  SessionOptions hasty = options();
  hasty.limits.deadlines.start = std::chrono::seconds(2);
  const CaseRun run = this->run(fault_testee({"--fault", "never_hello"}), {small_case("a")}, hasty).runs[0];
  EXPECT_EQ(run.ranks[0].end, RankEnd::aborted);
  EXPECT_EQ(run.ranks[1].end, RankEnd::not_started);
  EXPECT_EQ(run.ranks[1].detail_code, "no_hello");
  EXPECT_THAT(run.blame, HasSubstr("rank 1 did not start: it never said hello within 2 s"));
  EXPECT_THAT(run.ranks[1].stacks, HasSubstr("state S"));
  EXPECT_LE(run.seconds.count(), 5);
}

TEST_F(SessionRuns, ATesteeThatNeverStartsIsGivenUpAfterTwoAttempts) {
  const StartLog log;
  Testee testee = log.noting("$RANK");
  testee.command.back() += " --fault start_exit_1 --rank 0";
  std::vector<Case> cases;
  for (int i = 0; i < 20; ++i) cases.push_back(small_case("case" + std::to_string(i)));
  const Outcome outcome = run(testee, cases);
  EXPECT_THAT(outcome.runs,
              Each(Field(&CaseRun::blame, HasSubstr("ended with exit code 1 before it said hello"))));
  EXPECT_EQ(outcome.runs[19].case_id, "case19");
  EXPECT_THAT(outcome.runs[19].blame, HasSubstr("not tried again after 2 failed starts"));
  EXPECT_LE(log.lines().size(), 6u);
}

TEST_F(SessionRuns, TheRendezvousFileIsFreshForEveryGroup) {
  Testee testee;
  testee.command = {"sh", "-c",
                    "[ $RANK = 1 ] || [ ! -e $FSDP_CTS_RENDEZVOUS ] || exit 9; [ $RANK = 1 ] || echo stale > "
                    "$FSDP_CTS_RENDEZVOUS; exec " FAULT_TESTEE " --fault sigkill --when bad"};
  const Outcome outcome = run(testee, {small_case("bad1"), small_case("bad2"), small_case("good")});
  EXPECT_EQ(outcome.runs[0].ranks[1].end, RankEnd::crash);
  EXPECT_EQ(outcome.runs[1].ranks[1].end, RankEnd::crash);
  EXPECT_THAT(outcome.runs[2], all_done);
}

TEST_F(SessionRuns, ACallbackThatThrowsEndsTheRunButNotTheSession) {
  const Testee testee = fault_testee({});
  const Case a_case = small_case("a");
  const Case other = small_case("b");
  Session session(options());
  EXPECT_THROW(session.run({{&testee, &a_case, {}}, {&testee, &other, {}}},
                           [](const Job&, CaseRun&&) { throw std::logic_error("no judge"); }),
               std::logic_error);
  int completed = 0;
  session.run({{&testee, &a_case, {}}}, [&](const Job&, CaseRun&& run) {
    ++completed;
    EXPECT_THAT(run, all_done);
  });
  EXPECT_EQ(completed, 1);
  session.close();
}

TEST_F(SessionRuns, AnUnusableScratchRootIsNamed) {
  SessionOptions bad = options();
  bad.scratch_root = "/proc";  // nobody can write there, not even root
  EXPECT_THROW(Session{bad}, ScratchError);
  bad.scratch_root = root() / std::string(120, 'x');
  EXPECT_THROW(Session{bad}, ScratchError);
}

TEST_F(SessionRuns, DataThatCannotBeWrittenCostThatCaseOnly) {
  const Testee testee = fault_testee({});
  const Case first = small_case("a");
  Case second = small_case("b");
  second.models = {{"model",
                    {{"type", "Linear"},
                     {"class", "Linear"},
                     {"in", 2},
                     {"out", 2},
                     {"bias", true}}}};  // needs a data file of its own
  std::map<std::string, CaseRun> runs;
  const auto keep = [&](const Job& job, CaseRun&& run) { runs[job.a_case->id] = std::move(run); };
  Session session(options());
  session.run({{&testee, &first, {}}}, keep);
  std::filesystem::rename(session.folder() / "data", session.folder() / "elsewhere");
  session.run({{&testee, &second, {}}}, keep);
  std::filesystem::rename(session.folder() / "elsewhere", session.folder() / "data");
  session.run({{&testee, &first, {}}}, keep);
  EXPECT_EQ(runs["b"].ranks[0].end, RankEnd::not_started);
  EXPECT_EQ(runs["b"].ranks[0].detail_code, "scratch");
  EXPECT_THAT(runs["b"].blame, HasSubstr("the case did not reach its ranks"));
  EXPECT_THAT(runs["a"], all_done);
  session.close();
}

}  // namespace
}  // namespace fsdp_cts
