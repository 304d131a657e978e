#include "harness/runner/tests/session_fixture.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <ostream>

namespace fsdp_cts {
namespace {

using ::testing::IsEmpty;

std::vector<std::filesystem::path> contents(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& each : std::filesystem::recursive_directory_iterator(folder)) found.push_back(each.path());
  return found;
}

}  // namespace

void PrintTo(RankEnd end, std::ostream* out) {
  constexpr std::array names = {"done", "error",          "unsupported", "crash",
                                "hang", "protocol_error", "not_started", "aborted"};
  *out << names.at(static_cast<std::size_t>(end));
}

void PrintTo(const CaseRun& run, std::ostream* out) {
  *out << run.case_id << ": " << (run.blame.empty() ? "nobody to blame" : run.blame);
}

SessionTest::SessionTest() {
  std::string pattern = "/tmp/cts-test-XXXXXX";
  root_ = ::mkdtemp(pattern.data());
  descriptors_before_ = open_descriptors();
}

SessionTest::~SessionTest() {
  std::filesystem::remove_all(root_);
}

void SessionTest::TearDown() {
  EXPECT_THAT(contents(root_), IsEmpty());
  EXPECT_THAT(processes_alive(), IsEmpty());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  EXPECT_EQ(errno, ECHILD);
  EXPECT_LE(open_descriptors(),
            descriptors_before_ + 1);  // one wake-up descriptor lives as long as the program
}

SessionOptions SessionTest::options() const {
  SessionOptions options;
  options.scratch_root = root_;
  return options;
}

Outcome SessionTest::run(const Testee& testee, const std::vector<Case>& cases,
                         const SessionOptions& options) {
  Outcome outcome;
  outcome.runs.resize(cases.size());
  std::vector<Job> jobs;
  for (const Case& each : cases) jobs.push_back({&testee, &each, {}});
  const auto keep = [&](const Job& job, CaseRun&& run) {
    outcome.runs[static_cast<std::size_t>(job.a_case - cases.data())] = std::move(run);
  };
  const auto ended_badly = [&](const Testee&, CaseRun&& run) {
    outcome.ended_badly.push_back(std::move(run));
  };
  Session session(options);
  session.run(jobs, keep, ended_badly);
  session.close(ended_badly);
  return outcome;
}

std::vector<int> SessionTest::processes_alive(const std::string& with) const {
  std::vector<int> found;
  for (const auto& each : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(each.path().filename().c_str());
    if (pid == 0) continue;
    std::ifstream file(each.path() / "environ", std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    const auto names = [&](const char* variable) {
      return environment.find(variable + root_.string()) != std::string::npos;
    };
    const auto token = environment.find("FSDP_CTS_TOKEN=");
    if ((names("FSDP_CTS_SOCKET=") || names("FSDP_CTS_FORK_SERVER=")) && token != std::string::npos &&
        environment.substr(token, environment.find('\0', token) - token).find(with) != std::string::npos)
      found.push_back(pid);
  }
  return found;
}

StartLog::StartLog() {
  std::string pattern = "/tmp/cts-log-XXXXXX";
  ::close(::mkstemp(pattern.data()));
  file_ = pattern;
}

StartLog::~StartLog() {
  std::filesystem::remove(file_);
}

Testee StartLog::noting(const std::string& what, const std::string& arguments) const {
  Testee testee;
  testee.name = "noting";
  testee.command = {"sh", "-c",
                    "echo " + what + " >> " + file_.string() + "; exec " FAULT_TESTEE " " + arguments};
  return testee;
}

std::vector<std::string> StartLog::lines() const {
  std::ifstream in(file_);
  std::vector<std::string> result;
  for (std::string line; std::getline(in, line);) result.push_back(line);
  std::sort(result.begin(), result.end());
  return result;
}

Testee fault_testee(std::vector<std::string> arguments) {
  Testee testee;
  testee.name = "fault_testee";
  testee.command = {FAULT_TESTEE};
  testee.command.insert(testee.command.end(), arguments.begin(), arguments.end());
  testee.forks = std::getenv("FSDP_CTS_TEST_FORKS") != nullptr;
  return testee;
}

Case small_case(const std::string& id, int world) {
  Case a_case;
  a_case.id = id;
  a_case.world = world;
  a_case.switches = a_case.models = a_case.plans = Json::object();
  a_case.data = {{"seed", 1},
                 {"parameters", {{"formula", "ordinary"}, {"scale", "fan_in"}, {"norms", "constant"}}},
                 {"inputs", Json::object()}};
  a_case.program = Json::array();
  for (const char* verb : {"build", "shard", "forward", "backward", "observe"})
    a_case.program.push_back({{"verb", verb}});
  return a_case;
}

std::size_t lowest_free_descriptor() {
  const int next = ::dup(0);
  ::close(next);
  return static_cast<std::size_t>(next);
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

}  // namespace fsdp_cts
