// What the tests of the runner share: the fault testee as a testee, small cases, and a look at what is left
// behind.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "harness/runner/session.hpp"

namespace fsdp_cts {

void PrintTo(RankEnd end, std::ostream* out);
void PrintTo(const CaseRun& run, std::ostream* out);

struct Outcome {
  std::vector<CaseRun> runs;         // in the order of the cases
  std::vector<CaseRun> ended_badly;  // between cases, or after bye
};

// Every test of this kind also asserts that nothing is left behind: no file, process, child or descriptor.
// Of a CaseRun: every rank did what it was asked.
inline const auto all_done =
    ::testing::Field(&CaseRun::ranks, ::testing::Each(::testing::Field(&RankReport::end, RankEnd::done)));

class SessionTest : public ::testing::Test {
 protected:
  SessionTest();
  ~SessionTest() override;
  void TearDown() override;

  // The scratch root is the test's own. Deadlines are the usual ones, which a loaded machine keeps; tests of
  // deadlines set theirs.
  SessionOptions options() const;
  // Runs the cases in a session of its own, and closes it.
  Outcome run(const Testee& testee, const std::vector<Case>& cases) { return run(testee, cases, options()); }
  Outcome run(const Testee& testee, const std::vector<Case>& cases, const SessionOptions& options);

  const std::filesystem::path& root() const { return root_; }
  // Processes with the test's scratch root in their environment, and with this in their token.
  std::vector<int> processes_alive(const std::string& with = "") const;
  // The ranks and what they have started.
  std::vector<int> ranks_alive() const { return processes_alive("-g"); }

 private:
  std::filesystem::path root_;
  std::size_t descriptors_before_ = 0;
};

// A log that the testee's processes write to, outside the session's scratch root: one line per start.
class StartLog {
 public:
  StartLog();
  ~StartLog();
  // The testee, behind a shell that notes something first.
  Testee noting(const std::string& what, const std::string& arguments = "") const;
  std::vector<std::string> lines() const;  // sorted

 private:
  std::filesystem::path file_;
};

// With FSDP_CTS_TEST_FORKS in the environment its ranks are forked by a server.
Testee fault_testee(std::vector<std::string> arguments);

// A case with the program build, shard, forward, backward, observe (steps 0 to 4) and no model.
Case small_case(const std::string& id, int world = 2);

std::size_t open_descriptors();
// The number the next descriptor would have: as limit of open files it leaves none.
std::size_t lowest_free_descriptor();

}  // namespace fsdp_cts
