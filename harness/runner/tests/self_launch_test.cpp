// Ranks that somebody else has started connect over TCP.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "harness/protocol/channel.hpp"
#include "harness/runner/tests/session_fixture.hpp"

namespace fsdp_cts {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SelfLaunch : public SessionTest {
 protected:
  void TearDown() override {
    for (const pid_t pid : started_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    SessionTest::TearDown();
  }

  // A testee whose ranks this test starts, with the given arguments, as soon as it is invited.
  Testee elsewhere(const std::vector<std::string>& arguments, int ranks = 2) {
    Testee testee;
    testee.name = "elsewhere";
    testee.self = fsdp_cts::SelfLaunch{};
    testee.self->invite = [this, arguments, ranks](const Invitation& invitation) {
      invitations_.push_back(invitation);
      for (int rank = 0; rank < ranks; ++rank) start(invitation, rank, arguments);
    };
    return testee;
  }

  void start(const Invitation& invitation, int rank, const std::vector<std::string>& arguments) {
    const pid_t pid = ::fork();
    if (pid != 0) return started_.push_back(pid);
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(invitation.world).c_str(), 1);
    ::setenv("FSDP_CTS_SOCKET", invitation.address.c_str(), 1);
    ::setenv("FSDP_CTS_TOKEN", invitation.token.c_str(), 1);
    std::vector<char*> argv = {const_cast<char*>(FAULT_TESTEE)};
    for (const std::string& each : arguments) argv.push_back(const_cast<char*>(each.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  std::vector<Invitation> invitations_;
  std::vector<pid_t> started_;
};

TEST_F(SelfLaunch, AConnectionThatTheRunnerHasNoDescriptorForIsItsOwnTrouble) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  Testee testee = elsewhere({});
  testee.self->invite = [this, invite = testee.self->invite, &before](const Invitation& invitation) {
    invite(invitation);
    const rlimit none_left{lowest_free_descriptor(), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none_left);
  };
  SessionOptions patient = options();
  patient.limits.deadlines.start = std::chrono::seconds(20);
  const Outcome outcome = run(testee, {small_case("a")}, patient);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(outcome.runs[0].ranks[0].end, RankEnd::not_started);
  EXPECT_EQ(outcome.runs[0].ranks[0].detail_code, "no_descriptor");
  EXPECT_THAT(outcome.runs[0].blame, HasSubstr("Raise the limit of open files"));
  EXPECT_LT(outcome.runs[0].seconds.count(), 15);  // it did not ask again and again until the deadline
}

TEST_F(SelfLaunch, RanksConnectAndServeCaseAfterCase) {
  const Outcome outcome = run(elsewhere({}), {small_case("a"), small_case("b")});
  EXPECT_THAT(outcome.runs, Each(all_done));
  EXPECT_THAT(outcome.ended_badly, IsEmpty());
  ASSERT_THAT(invitations_, SizeIs(1));
  EXPECT_THAT(invitations_[0].address, HasSubstr("127.0.0.1:"));
  EXPECT_EQ(invitations_[0].world, 2);
  // They heard bye; one that is still on its way out when the session closes is swept from this host.
  for (pid_t& pid : started_) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
  }
  started_.clear();
}

TEST_F(SelfLaunch, AfterACrashNewRanksAreInvited) {
  const Outcome outcome =
      run(elsewhere({"--fault", "sigkill", "--when", "bad"}), {small_case("bad"), small_case("good")});
  EXPECT_EQ(outcome.runs[0].ranks[1].end,
            RankEnd::protocol_error);  // its exit status is somebody else's to see
  EXPECT_EQ(outcome.runs[0].ranks[1].detail_code, "closed_socket");
  EXPECT_THAT(outcome.runs[0].blame, HasSubstr("rank 1 broke the protocol (closed_socket)"));
  EXPECT_THAT(outcome.runs[1], all_done);
  EXPECT_THAT(invitations_, SizeIs(2));
}

TEST_F(SelfLaunch, AHungRankIsReportedWithoutStacks) {
  SessionOptions hasty = options();
  hasty.limits.deadlines.verb = std::chrono::seconds(1);
  const CaseRun run = this->run(elsewhere({"--fault", "hang"}), {small_case("a")}, hasty).runs[0];
  EXPECT_EQ(run.ranks[1].end, RankEnd::hang);
  EXPECT_THAT(run.blame, HasSubstr("rank 1 hangs in step 1 (shard)"));
}

TEST_F(SelfLaunch, StrangersAreRefusedAndHurtNobody) {
  Testee testee = elsewhere({});
  const auto invite_ranks = testee.self->invite;
  std::vector<std::thread> strangers;
  testee.self->invite = [&](const Invitation& invitation) {
    invite_ranks(invitation);
    for (const char* greeting : {R"({"type": "hello"})", R"({"type": "done", "case": 1})"}) {
      strangers.emplace_back([greeting, address = invitation.address] {
        Channel channel = Channel::connect(address);
        channel.send(Json::parse(greeting));
        try {
          channel.receive();
        } catch (const FrameError&) {  // reset or closed, as the runner likes
        }
      });
    }
  };
  EXPECT_THAT(run(testee, {small_case("a")}).runs, Each(all_done));
  for (std::thread& each : strangers) each.join();
}

TEST_F(SelfLaunch, ARankThatNeverComesIsMissed) {
  SessionOptions hasty = options();
  hasty.limits.deadlines.start = std::chrono::seconds(2);
  const CaseRun run = this->run(elsewhere({}, 1), {small_case("a")}, hasty).runs[0];
  EXPECT_EQ(run.ranks[0].end, RankEnd::aborted);
  EXPECT_EQ(run.ranks[1].end, RankEnd::not_started);
  EXPECT_THAT(run.blame, HasSubstr("rank 1 did not start: it never said hello within 2 s"));
}

}  // namespace
}  // namespace fsdp_cts
