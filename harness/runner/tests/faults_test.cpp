// Every fault that the fault testee knows: how it is reported, whom the blame names, how long it takes, and
// that the other cases are not touched. One line of the table is one fault.
#include <gmock/gmock.h>

#include <chrono>
#include <ostream>

#include "harness/runner/tests/session_fixture.hpp"

namespace fsdp_cts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Fault {
  const char* name;
  RankEnd end;
  const char* code;
  const char* blame;  // what the sentence must hold
  bool peers_wait = false;
  double at_most =
      3;  // seconds to the report, on a loaded machine; grace for the other ranks is 0.25 s of it
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) {
  return out << fault.name;
}

// What the supervisor answers within after a deadline of 1 s or 2 s: a bound against waiting for ever, which
// a machine busy with other work must not break.
constexpr double after_deadline = 30;

const Fault at_start[] = {
    {"start_exit_0", RankEnd::not_started, "exit",
     "rank 1 did not start: it ended with exit code 0 before it said hello"},
    {"start_exit_1", RankEnd::not_started, "exit",
     "rank 1 did not start: it ended with exit code 1 before it said hello"},
    {"start_sigkill", RankEnd::not_started, "signal",
     "rank 1 did not start: it was killed by signal 9 (SIGKILL)"},
    {"done_before_hello", RankEnd::protocol_error, "no_hello", "rank 1 broke the protocol (no_hello)"},
    {"wrong_version", RankEnd::protocol_error, "wrong_version", "speaks protocol version 2"},
    {"wrong_token", RankEnd::protocol_error, "wrong_token", "rank 1 broke the protocol (wrong_token)"},
    {"wrong_rank", RankEnd::protocol_error, "wrong_rank", "hello says rank 2; expected was 1"},
    {"one_process", RankEnd::protocol_error, "one_process", "speaks for rank 0 and for rank 1"},
};

const Fault in_a_case[] = {
    {"dies_before_rendezvous", RankEnd::crash, "signal", "in the time before the first step"},
    {"hangs_before_rendezvous", RankEnd::hang, "verb_deadline", "rank 1 hangs in the rendezvous", false,
     after_deadline},
    {"unsupported", RankEnd::protocol_error, "unsupported_disagreement", "while rank 0 acts it out"},
    {"late_unsupported", RankEnd::protocol_error, "unsupported_disagreement",
     "(it found out late) while rank 0 acts it out"},
    {"sigsegv", RankEnd::crash, "signal", "rank 1 was killed by signal 11 (SIGSEGV) in step 1 (shard)", true},
    {"sigabrt", RankEnd::crash, "signal", "rank 1 was killed by signal 6 (SIGABRT) in step 1 (shard)", true},
    {"sigkill", RankEnd::crash, "signal", "rank 1 was killed by signal 9 (SIGKILL) in step 1 (shard)", true},
    {"exit_0", RankEnd::crash, "exit", "rank 1 ended with exit code 0 in step 1 (shard)", true},
    {"traced_exit", RankEnd::protocol_error, "closed_socket", "closed its socket before the end and lives on",
     true},
    {"exit_3", RankEnd::crash, "exit",
     "rank 1 ended with exit code 3 in step 1 (shard); rank 0 had finished"},
    {"out_of_memory", RankEnd::crash, "out_of_memory", "because it could not get memory in step 1 (shard)",
     true},
    {"exception", RankEnd::error, "exception",
     "rank 1 raised ValueError (the shard has 3 rows, 4 were expected) in step 1 (shard)", true},
    {"disk_full", RankEnd::error, "exception", "rank 1 raised RuntimeError"},
    {"uncaught_exception", RankEnd::crash, "signal",
     "rank 1 was killed by signal 6 (SIGABRT) in step 1 (shard)", true},
    {"hang", RankEnd::hang, "verb_deadline", "rank 1 hangs in step 1 (shard)", true, after_deadline},
    {"hang_busy", RankEnd::hang, "verb_deadline", "rank 1 hangs in step 1 (shard)", true, after_deadline},
    {"hang_ignoring_sigterm", RankEnd::hang, "verb_deadline", "rank 1 hangs in step 1 (shard)", true,
     after_deadline},
    {"second_hello", RankEnd::protocol_error, "out_of_turn", "hello was said a second time"},
    {"wrong_case", RankEnd::protocol_error, "wrong_case", "is about case 3; the current one is 2"},
    {"done_twice", RankEnd::protocol_error, "out_of_turn", "came after the end of the case", true},
    {"step_beyond_program", RankEnd::protocol_error, "wrong_step",
     "progress at step 1000; the program has 5 steps"},
    {"step_backwards", RankEnd::protocol_error, "out_of_turn", "progress at step 0 after step 1"},
    {"observation_ahead", RankEnd::protocol_error, "out_of_turn",
     "an observation of step 2 before its progress"},
    {"observation_of_other_rank", RankEnd::protocol_error, "wrong_rank", "an observation says rank 2"},
    {"finding_ahead", RankEnd::protocol_error, "out_of_turn", "a finding of step 2 before its progress"},
    {"use_ahead", RankEnd::protocol_error, "out_of_turn",
     "the use of a device in step 2 comes before its progress"},
    {"use_of_other_rank", RankEnd::protocol_error, "wrong_rank", "the use of a device says rank 2"},
    {"finding_of_other_rank", RankEnd::protocol_error, "wrong_rank", "a finding says rank 2"},
    {"observation_flood", RankEnd::protocol_error, "out_of_turn",
     "an observation of step 1 after one of step 1"},
    {"unknown_type", RankEnd::protocol_error, "unknown_type", "greetings"},
    {"missing_key", RankEnd::protocol_error, "invalid_message", "no key \"case\""},
    {"long_what", RankEnd::protocol_error, "invalid_message",
     "found 50009 characters beginning with \"register:aaaa"},
    {"long_message", RankEnd::error, "exception", "rank 1 raised ValueError (the dtype is wrong: aaaa"},
    {"endless_message", RankEnd::protocol_error, "invalid_message", "found 1048576 characters"},
    {"malformed_json", RankEnd::protocol_error, "malformed_json",
     "rank 1 broke the protocol (malformed_json)"},
    {"huge_number", RankEnd::protocol_error, "malformed_json", "rank 1 broke the protocol (malformed_json)"},
    {"not_utf8", RankEnd::protocol_error, "malformed_json", "rank 1 broke the protocol (malformed_json)"},
    {"oversize_frame", RankEnd::protocol_error, "oversize_frame", "16777217 bytes"},
    {"garbage", RankEnd::protocol_error, "oversize_frame", "rank 1 broke the protocol (oversize_frame)"},
    {"half_frame_then_exit", RankEnd::protocol_error, "truncated_frame", "ended inside a frame", true},
    {"half_frame_then_sleep", RankEnd::protocol_error, "truncated_frame", "inside a frame and lives on",
     true},
    {"close_socket", RankEnd::protocol_error, "closed_socket", "closed its socket", true},
    {"talk_for_ever", RankEnd::hang, "case_deadline", "rank 1 hangs in step 1 (again)", false,
     after_deadline},
    {"missing_file", RankEnd::protocol_error, "missing_file", "in step 4 (observe)"},
    {"truncated_file", RankEnd::protocol_error, "header_beyond_file", "in step 4 (observe)"},
    {"hostile_file", RankEnd::protocol_error, "header_too_large", "in step 4 (observe)"},
    {"pipe_for_file", RankEnd::protocol_error, "not_a_file", "in step 4 (observe)"},
    {"file_outside", RankEnd::protocol_error, "file_outside_scratch", "in step 4 (observe)"},
    {"missing_tensor", RankEnd::protocol_error, "missing_tensor", "\"nowhere\""},
};

class StartFaults : public SessionTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(StartFaults, AreReported) {
  const Fault& fault = GetParam();
  const Outcome outcome = run(fault_testee({"--fault", fault.name}), {small_case("only")});
  const CaseRun& bad = outcome.runs[0];
  EXPECT_EQ(bad.ranks[1].end, fault.end);
  EXPECT_EQ(bad.ranks[1].detail_code, fault.code);
  EXPECT_EQ(bad.ranks[0].end, RankEnd::aborted);
  EXPECT_THAT(bad.blame, HasSubstr(fault.blame));
  EXPECT_LE(bad.seconds.count(), fault.at_most);
}

INSTANTIATE_TEST_SUITE_P(Every, StartFaults, ::testing::ValuesIn(at_start),
                         [](const auto& each) { return each.param.name; });

class CaseFaults : public SessionTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(CaseFaults, AreReportedAndTouchNoOtherCase) {
  const Fault& fault = GetParam();
#ifdef __SANITIZE_ADDRESS__
  if (fault.code == std::string("out_of_memory"))
    GTEST_SKIP()
        << "AddressSanitizer reserves its shadow beyond any limit of address space and ends the rank itself";
#endif
  std::vector<std::string> arguments = {"--fault", fault.name, "--when", "faulty"};
  if (fault.peers_wait) arguments.push_back("--peers-wait");
  SessionOptions limited = options();
  if (fault.end == RankEnd::hang) {
    limited.limits.deadlines.rendezvous = limited.limits.deadlines.verb = std::chrono::seconds(1);
    limited.limits.deadlines.total = std::chrono::seconds(2);
  }
  const Outcome outcome = run(fault_testee(arguments),
                              {small_case("before"), small_case("faulty"), small_case("after")}, limited);

  const CaseRun& bad = outcome.runs[1];
  EXPECT_EQ(bad.case_id, "faulty");
  EXPECT_EQ(bad.ranks[1].end, fault.end);
  EXPECT_EQ(bad.ranks[1].detail_code, fault.code);
  EXPECT_THAT(bad.blame, HasSubstr("rank 1 "));
  EXPECT_THAT(bad.blame, HasSubstr(fault.blame));
  EXPECT_LE(bad.blame.size(), 1500U);
  EXPECT_LE(bad.seconds.count(), fault.at_most);
  if (fault.end == RankEnd::hang) {
    EXPECT_THAT(bad.ranks[1].stacks, HasSubstr("state "));
    if (fault.peers_wait) {
      EXPECT_THAT(bad.blame, HasSubstr("rank 0 hangs in step 1 (shard)"));
    }
  } else if (fault.peers_wait) {
    EXPECT_EQ(bad.ranks[0].end, RankEnd::aborted);
    EXPECT_THAT(bad.blame, HasSubstr("rank 0 was in step 1 (shard)"));
  }
  for (const int other : {0, 2}) {
    const CaseRun& good = outcome.runs[static_cast<std::size_t>(other)];
    EXPECT_EQ(good.blame, "");
    EXPECT_THAT(good.ranks, SizeIs(2));
    for (const RankReport& rank : good.ranks) EXPECT_EQ(rank.end, RankEnd::done);
    EXPECT_THAT(good.observations, SizeIs(2));
  }
  EXPECT_THAT(outcome.ended_badly, IsEmpty());
}

using Files = SessionTest;

TEST_F(Files, BehindALinkAreNeitherReadNorRemoved) {
  const std::filesystem::path outside = root() / "outside";
  for (const char* fault : {"file_is_link", "file_behind_link"}) {
    Testee testee = fault_testee({"--fault", fault});
    testee.environment["TMPDIR"] = outside;
    std::filesystem::create_directory(outside);
    const Outcome outcome = run(testee, {small_case("only")});
    EXPECT_EQ(outcome.runs[0].ranks[1].detail_code, "not_a_file") << fault;
    EXPECT_TRUE(std::filesystem::exists(outside / "fsdp-cts-precious" / "step4.safetensors")) << fault;
    std::filesystem::remove_all(outside);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, CaseFaults, ::testing::ValuesIn(in_a_case),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace fsdp_cts
