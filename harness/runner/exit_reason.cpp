#include "harness/runner/exit_reason.hpp"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <array>
#include <fstream>
#include <string_view>

namespace fsdp_cts {
namespace {

// What allocators write when they give up: C++, PyTorch's CPU allocator, Python.
constexpr std::array<std::string_view, 3> allocation_failures = {"std::bad_alloc", "can't allocate memory",
                                                                 "MemoryError"};

bool tells_of_allocation_failure(const std::string& output) {
  for (const std::string_view text : allocation_failures) {
    if (output.find(text) != std::string::npos) return true;
  }
  return false;
}

std::string signal_text(int number) {
  const char* name = ::sigabbrev_np(number);
  return "signal " + std::to_string(number) + (name == nullptr ? "" : std::string(" (SIG") + name + ")");
}

}  // namespace

ExitReason explain_exit(int status, const std::string& output, std::uint64_t oom_kills) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    if (number == SIGKILL && oom_kills > 0) {
      return {"out_of_memory", "was killed by the kernel because memory ran out (SIGKILL)"};
    }
    if (number == SIGABRT && tells_of_allocation_failure(output)) {
      return {"out_of_memory", "ended with SIGABRT because it could not get memory"};
    }
    return {"signal", "was killed by " + signal_text(number)};
  }
  const int code = WEXITSTATUS(status);
  if (code != 0 && tells_of_allocation_failure(output)) {
    return {"out_of_memory",
            "ended with exit code " + std::to_string(code) + " because it could not get memory"};
  }
  return {"exit", "ended with exit code " + std::to_string(code)};
}

std::uint64_t oom_kill_count() {
  // Version 2 of control groups has one line "0::/path" here; the counter stands beside the group's other
  // files.
  std::ifstream membership("/proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    if (!line.starts_with("0::")) continue;
    std::ifstream events("/sys/fs/cgroup" + line.substr(3) + "/memory.events");
    std::string name;
    for (std::uint64_t value = 0; events >> name >> value;) {
      if (name == "oom_kill") return value;
    }
  }
  return 0;
}

}  // namespace fsdp_cts
