#include "harness/cli/tests/command_line.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace fsdp_cts {

namespace fs = std::filesystem;

CommandLine::CommandLine() {
  std::string pattern = (fs::path(::testing::TempDir()) / "fsdp-cts-cli-XXXXXX").string();
  folder_ = mkdtemp(pattern.data());
}
CommandLine::~CommandLine() {
  fs::remove_all(folder_);
}

Ran CommandLine::operator()(const std::string& arguments) const {
  const std::string line = fmt::format("cd {} && FSDP_CTS_ROOT={} {} {} 2>&1", folder_.string(), SMALL_SUITE,
                                       FSDP_CTS_PROGRAM, arguments);
  FILE* pipe = popen(line.c_str(), "r");
  Ran ran;
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
    ran.output.append(buffer.data(), count);
  const int status = pclose(pipe);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return ran;
}

void CommandLine::copy_suite(const std::string& name) const {
  std::filesystem::create_directories(folder_ / name);
  std::filesystem::copy(std::filesystem::path(SMALL_SUITE) / "conformance", folder_ / name / "conformance",
                        std::filesystem::copy_options::recursive);
}

std::string CommandLine::fault(const std::string& name, const std::string& more) const {
  return fmt::format("--testee '{}{}{}' --golden store", FAULT_TESTEE, name.empty() ? "" : " --fault " + name,
                     more.empty() ? "" : " " + more);
}

void CommandLine::record() const {
  const Ran ran = (*this)(
      fmt::format("run T/TestCommandLine/test_parameters --testee '{} --name pytorch --version 2.11.0' "
                  "--record store",
                  FAULT_TESTEE));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
}

}  // namespace fsdp_cts
