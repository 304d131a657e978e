// One process of the session: a rank, or a tool that looks at one. Its own process group, output through one
// pipe, gone when the runner is gone.
#pragma once

#include <sys/types.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/runner/guardian.hpp"

namespace fsdp_cts {

// `code`: "not_found", "not_executable", "exec_failed", "no_process" (the system gives no process, pipe or
// memory).
class SpawnError : public std::runtime_error {
 public:
  SpawnError(std::string error_code, const std::string& what)
      : std::runtime_error(what), code(std::move(error_code)) {}
  const std::string code;
};

class Process {
 public:
  // Starts `command` (command[0] is looked up in PATH) with exactly this environment ("NAME=value"), stdin
  // closed, stdout and stderr joined in output(). The calling thread must outlive the process: its end is the
  // process's end. Throws SpawnError when the program did not begin to run.
  Process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
          const Guardian& guardian);
  // Takes over a child that leads its own process group, and the pipe that its output comes through. Throws
  // SpawnError; the pipe is the caller's then.
  Process(pid_t child, int output, const Guardian& guardian);
  // Kills and reaps the whole process group; waits half a second at most for what does not die of that.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  int output() const { return output_; }  // non-blocking
  int end() const { return pidfd_; }      // readable when the process has ended

  void signal_group(int signal) const;
  // The wait status once end() is readable; never waits.
  std::optional<int> reap();
  // Kills and reaps what is left of the process group, without waiting: a member that hangs in the kernel, in
  // a driver for instance, does not even die of SIGKILL. False as long as the process or a member is there.
  bool group_gone();

 private:
  void watch();

  const Guardian& guardian_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int output_ = -1;
  std::optional<int> status_;
  bool gone_ = false;
};

}  // namespace fsdp_cts
