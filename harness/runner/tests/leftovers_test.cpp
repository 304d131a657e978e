// No process and no file is left behind, whichever process dies and in whatever way.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "harness/runner/tests/session_fixture.hpp"

namespace fsdp_cts {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;
using ::testing::Not;
using ::testing::SizeIs;

class Leftovers : public SessionTest {
 protected:
  // A runner in a process of its own, which the test may kill.
  pid_t runner(const std::vector<std::string>& arguments, int cases = 1) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    const Testee testee = fault_testee(arguments);
    std::vector<Case> list;
    for (int i = 0; i < cases; ++i) list.push_back(small_case("case" + std::to_string(i)));
    int code = 0;
    try {
      for (const CaseRun& each : run(testee, list).runs) code |= each.blame.empty() ? 0 : 1;
    } catch (const Interrupted& e) {
      code = 128 + e.signal;
    }
    ::_exit(code);
  }

  static int end_of(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }

  // A dying process is no longer seen as a rank before the kernel tells of its end: then it is a zombie, or
  // reaped.
  static bool some_child_is_dying() {
    for (const auto& each : std::filesystem::directory_iterator("/proc")) {
      std::ifstream stat(each.path() / "stat");
      std::string pid, name, state, parent;
      if (!(stat >> pid >> name >> state >> parent) || parent != std::to_string(::getpid())) continue;
      std::ifstream environ(each.path() / "environ");
      if (state != "Z" && environ.peek() == std::ifstream::traits_type::eof()) return true;
    }
    return false;
  }

  static bool within(std::chrono::milliseconds patience, const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  bool nothing_left() const { return processes_alive().empty() && std::filesystem::is_empty(root()); }
};

TEST_F(Leftovers, GrandchildrenAreEndedWithTheirRank) {
  EXPECT_THAT(run(fault_testee({"--fault", "grandchild"}), {small_case("a")}).runs, Each(all_done));
}

TEST_F(Leftovers, GrandchildrenThatLeftTheProcessGroupToo) {
  EXPECT_THAT(run(fault_testee({"--fault", "escaped_grandchild"}), {small_case("a")}).runs, Each(all_done));
}

TEST_F(Leftovers, GrandchildrenWhoseEndSomebodyKeepsBackDoNotStopTheRunner) {
  EXPECT_THAT(run(fault_testee({"--fault", "traced_grandchild"}), {small_case("a")}).runs, Each(all_done));
}

// The guardian of the session in this process: the child that has set its name.
pid_t guardian() {
  for (const auto& each : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(each.path() / "stat");
    pid_t pid = 0, parent = 0;
    std::string name, state;
    if (file >> pid >> name >> state >> parent && name == "(cts-guardian)" && parent == ::getpid())
      return pid;
  }
  return -1;
}

TEST_F(Leftovers, ARunnerWhoseGuardianDiesGoesOn) {
  const Testee testee = fault_testee({});
  const Case a_case = small_case("a");
  Session session(options());
  // The child may not have got its name yet.
  pid_t victim = guardian();
  for (int tries = 0; victim < 0 && tries < 200; ++tries, victim = guardian())
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(victim), &info, WEXITED | WNOWAIT), 0);
  session.run({{&testee, &a_case, {}}}, [](const Job&, CaseRun&& run) { EXPECT_THAT(run, all_done); });
  session.close();
}

// Whatever the runner has no descriptor for, it says so and goes on.
TEST_F(Leftovers, ARunnerWithoutDescriptorsSaysSo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan looks at what is caught through a pipe; without descriptors it takes it for garbage";
#endif
  const Testee testee = fault_testee({});
  const Case a_case = small_case("a");
  Session session(options());
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  std::set<std::string> codes;
  for (std::size_t more = 0; more < 24; ++more) {
    rlimit few{lowest_free_descriptor() + more, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    const auto began = std::chrono::steady_clock::now();
    CaseRun result;
    session.run({{&testee, &a_case, {}}}, [&](const Job&, CaseRun&& run) { result = std::move(run); });
    session.close();
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
    for (const RankReport& rank : result.ranks)
      codes.insert(rank.end == RankEnd::done ? "done" : rank.detail_code);
  }
  EXPECT_THAT(codes, ::testing::IsSupersetOf({"scratch", "no_process", "done"}));
}

TEST_F(Leftovers, ARunnerThatIsKilledTakesEverythingWithIt) {
  const pid_t pid = runner({"--fault", "escaped_grandchild", "--peers-wait"});
  ASSERT_TRUE(within(std::chrono::seconds(30), [&] { return ranks_alive().size() == 3; }));
  ::kill(pid, SIGKILL);
  EXPECT_EQ(WTERMSIG(end_of(pid)), SIGKILL);
  EXPECT_TRUE(within(std::chrono::seconds(2), [&] { return nothing_left(); }));
}

TEST_F(Leftovers, WhatARunnerLeftThatDiedWithItsGuardianGoesWithTheNextRun) {
  const auto folder = [&](const std::string& name, bool with_lock) {
    std::filesystem::create_directories(root() / name / "data");
    if (with_lock) std::ofstream(root() / name / "owner.lock").put('\n');
    return root() / name;
  };
  const auto left_over = folder("fsdp-cts-aaaaaa", true);
  const auto owned = folder("fsdp-cts-bbbbbb", true);
  const auto being_made = folder("fsdp-cts-cccccc", false);
  const auto of_others = folder("something-else", true);
  const int owner = ::open((owned / "owner.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(owner, LOCK_EX), 0);
  { const Session session(options()); }
  EXPECT_FALSE(std::filesystem::exists(left_over));
  for (const auto& other : {owned, being_made, of_others})
    EXPECT_TRUE(std::filesystem::exists(other)) << other;
  ::close(owner);
  for (const auto& other : {owned, being_made, of_others}) std::filesystem::remove_all(other);
}

TEST_F(Leftovers, AnInterruptedRunnerCleansUpAndSaysSo) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t pid = runner({"--fault", "grandchild", "--peers-wait"});
    ASSERT_TRUE(within(std::chrono::seconds(30), [&] { return ranks_alive().size() == 3; }));
    ::kill(pid, signal);
    EXPECT_EQ(WEXITSTATUS(end_of(pid)), 128 + signal);
    EXPECT_TRUE(nothing_left());
  }
}

TEST_F(Leftovers, AThousandCasesLeaveNoDescriptor) {
  const Testee testee = fault_testee({"--null"});
  const Case a_case = small_case("a");
  Session session(options());
  const auto none = [](const Job&, CaseRun&& run) { EXPECT_THAT(run, all_done); };
  session.run({{&testee, &a_case, {}}}, none);
  const std::size_t before = open_descriptors();
  session.run(std::vector<Job>(1000, Job{&testee, &a_case, {}}), none);
  EXPECT_EQ(open_descriptors(), before);
  session.close();
}

TEST_F(Leftovers, FiftyGroupsThatDieLeaveNoDescriptor) {
  const Testee testee = fault_testee({"--fault", "exit_3"});
  const Case a_case = small_case("a");
  Session session(options());
  const auto crashes = [](const Job&, CaseRun&& run) { EXPECT_EQ(run.ranks[1].end, RankEnd::crash); };
  session.run({{&testee, &a_case, {}}}, crashes);
  session.close();
  const std::size_t before = open_descriptors();
  session.run(std::vector<Job>(50, Job{&testee, &a_case, {}}), crashes);
  session.close();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Leftovers, TwentyRunsSideBySideDoNotClash) {
  std::vector<pid_t> runners;
  for (int i = 0; i < 20; ++i) runners.push_back(runner({}, 3));
  for (const pid_t pid : runners) EXPECT_EQ(end_of(pid), 0);
}

TEST_F(Leftovers, RanksThatEndBadlyAfterByeAreReported) {
  const auto closing_of = [this](const char* fault) {
    SessionOptions hasty = options();
    hasty.limits.deadlines.bye = std::chrono::seconds(1);
    const Outcome outcome = run(fault_testee({"--fault", fault}), {small_case("last")}, hasty);
    EXPECT_THAT(outcome.runs, Each(all_done));
    EXPECT_THAT(outcome.ended_badly, SizeIs(1));
    return outcome.ended_badly.empty() ? CaseRun{} : outcome.ended_badly[0];
  };
  const CaseRun exit = closing_of("bye_exit_5");
  EXPECT_EQ(exit.ranks[1].detail_code, "exit");
  EXPECT_THAT(exit.blame, HasSubstr("rank 1 ended with exit code 5 in bye; rank 0 had finished"));
  const CaseRun crash = closing_of("bye_sigsegv");
  EXPECT_EQ(crash.ranks[1].end, RankEnd::crash);
  const CaseRun hang = closing_of("bye_hang");
  EXPECT_EQ(hang.ranks[1].end, RankEnd::hang);
  EXPECT_EQ(hang.ranks[1].detail_code, "bye_deadline");
  EXPECT_THAT(hang.ranks[1].stacks, Not(IsEmpty()));
  EXPECT_THAT(hang.seconds.count(), Lt(4.0));
}

TEST_F(Leftovers, ARankThatDiesBetweenTwoCasesIsReportedAndReplaced) {
  const Testee testee = fault_testee({"--fault", "idle_sigsegv", "--rank", "0", "--when", "first"});
  const Case first = small_case("first", 1);
  const Case second = small_case("second", 1);
  std::vector<CaseRun> ended_badly;
  const auto good = [](const Job&, CaseRun&& run) { EXPECT_THAT(run, all_done); };
  const auto note = [&](const Testee&, CaseRun&& run) { ended_badly.push_back(std::move(run)); };
  Session session(options());
  session.run({{&testee, &first, {}}}, good, note);
  // Nobody looks meanwhile.
  ASSERT_TRUE(
      within(std::chrono::seconds(30), [&] { return ranks_alive().empty() && !some_child_is_dying(); }));
  session.run({{&testee, &second, {}}}, good, note);
  session.close(note);
  ASSERT_THAT(ended_badly, SizeIs(1));
  EXPECT_EQ(ended_badly[0].case_id, "");
  EXPECT_THAT(ended_badly[0].blame,
              HasSubstr("rank 0 was killed by signal 11 (SIGSEGV) between two cases, after first"));
}

TEST_F(Leftovers, TheResultOfACaseSurvivesItsRanksDeathRightAfter) {
  const Testee testee = fault_testee({"--fault", "idle_sigsegv", "--rank", "0"});
  const Outcome outcome = run(testee, {small_case("only", 1)});
  EXPECT_THAT(outcome.runs, Each(all_done));
}

}  // namespace
}  // namespace fsdp_cts
