// Ranks that a fork server makes: what they save, that they are ranks like others, and that a server which does
// not work costs nothing but time. Every fault of a rank is tried with forked ranks, too: see CMakeLists.txt.
#include <sys/wait.h>
#include <unistd.h>

#include "harness/runner/tests/session_fixture.hpp"

namespace fsdp_cts {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Testee forking(Testee testee) {
  testee.forks = true;
  return testee;
}

class ForkedRanks : public SessionTest {};

TEST_F(ForkedRanks, OneStartOfTheProgramServesAllOfThem) {
  const StartLog log;
  const Testee testee = forking(log.noting("start-$RANK", "--fault exception --when bad"));
  const Outcome outcome =
      run(testee, {small_case("a"), small_case("bad"), small_case("b", 4), small_case("c")});
  EXPECT_THAT(log.lines(), ElementsAre("start-"));
  EXPECT_EQ(outcome.runs[1].ranks[1].end, RankEnd::error);
  for (const std::size_t good : {0, 2, 3}) EXPECT_THAT(outcome.runs[good], all_done);
  EXPECT_THAT(outcome.ended_badly, IsEmpty());
}

TEST_F(ForkedRanks, ServeTheNextRunOfTheSession) {
  const StartLog log;
  const Testee testee = forking(log.noting("start"));
  const Case two = small_case("a"), four = small_case("b", 4);
  Session session(options());
  for (const Case* each : {&two, &four})
    session.run({{&testee, each, {}}}, [](const Job&, CaseRun&& run) { EXPECT_THAT(run, all_done); });
  session.close();
  EXPECT_THAT(log.lines(), ElementsAre("start"));
}

TEST_F(ForkedRanks, AreProcessesOfTheRunnersOwn) {
  const Testee testee = forking(fault_testee({}));
  const Case a_case = small_case("a");
  Session session(options());
  session.run({{&testee, &a_case, {}}}, [](const Job&, CaseRun&& run) { EXPECT_THAT(run, all_done); });
  const std::vector<int> ranks = ranks_alive();
  EXPECT_EQ(ranks.size(), 2u);
  for (const int rank : ranks) {
    EXPECT_EQ(::getpgid(rank), rank);
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(rank), nullptr, WEXITED | WNOHANG | WNOWAIT), 0)
        << rank << " is no child of this process";
  }
  session.close();
  EXPECT_THAT(ranks_alive(), IsEmpty());
}

// A rank that cannot be forked is started, and all is as without a server.
class FaultyForkServer : public SessionTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(FaultyForkServer, CostsNoVerdict) {
  const StartLog log;
  SessionOptions hasty = options();
  hasty.limits.deadlines.start = std::chrono::seconds(2);
  const Outcome outcome = run(forking(log.noting("$RANK", std::string("--fault ") + GetParam())),
                              {small_case("a"), small_case("b", 4)}, hasty);
  EXPECT_THAT(outcome.runs, Each(all_done));
  EXPECT_THAT(outcome.ended_badly, IsEmpty());
  EXPECT_THAT(log.lines(), ElementsAre("", "0", "0", "1", "1", "2", "3"));
}

INSTANTIATE_TEST_SUITE_P(Every, FaultyForkServer,
                         ::testing::Values("server_exits", "server_hangs", "server_refuses",
                                           "server_names_the_runner", "server_names_nobody",
                                           "server_says_nothing"),
                         [](const auto& each) { return each.param; });

// The server may be a child of a script that the runner started.
TEST_F(ForkedRanks, ComeFromAServerBehindAScript) {
  Testee testee;
  testee.name = "behind a script";
  testee.command = {"sh", "-c", FAULT_TESTEE "; exit $?"};
  const Outcome outcome = run(forking(testee), {small_case("a"), small_case("b", 4)});
  EXPECT_THAT(outcome.runs, Each(all_done));
  EXPECT_THAT(outcome.ended_badly, IsEmpty());
}

TEST_F(ForkedRanks, AProgramThatIsNotThereIsNamedAsEver) {
  Testee testee;
  testee.command = {"/no/such/testee"};
  const CaseRun run = this->run(forking(testee), {small_case("a")}).runs[0];
  EXPECT_EQ(run.ranks[0].detail_code, "not_found");
}

}  // namespace
}  // namespace fsdp_cts
