// Why a process ended, for the verdict and for a person.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp_cts {

struct ExitReason {
  std::string code;      // "signal", "exit", "out_of_memory"
  std::string sentence;  // "was killed by signal 11 (SIGSEGV)", "ended with exit code 3"
};

// `status` as waitpid gives it. `output` is what the process wrote: an uncaught std::bad_alloc ends in
// SIGABRT, and only the text tells. `oom_kills` is how often the kernel's memory killer struck in this
// control group during the process's life.
ExitReason explain_exit(int status, const std::string& output, std::uint64_t oom_kills);

// The kernel's count for this process's control group, 0 where it does not tell.
std::uint64_t oom_kill_count();

}  // namespace fsdp_cts
