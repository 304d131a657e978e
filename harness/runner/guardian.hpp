// Cleans up after a runner that cannot do it itself any more, killed by SIGKILL for instance: a small process
// that does nothing until the runner is gone. Then it kills every process group that was announced, every
// process that carries the session's mark in its environment, and removes the session's folder.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace fsdp_cts {

class Guardian {
 public:
  // Forks. `mark` is the beginning of an environment entry that every process of the session has
  // ("FSDP_CTS_TOKEN=<session>"). Throws std::system_error.
  Guardian(const std::filesystem::path& folder, const std::string& mark);
  // The guardian process has ended when this returns.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Async-signal-safe. A child announces its own group between fork and exec, so that none is ever unknown.
  void announce(pid_t process_group) const noexcept;
  void forget(pid_t process_group) const noexcept;

 private:
  int pipe_ = -1;
  pid_t process_ = -1;
};

// Kills (SIGKILL) and reaps what it can of the processes whose environment has an entry that begins with
// `mark`, until none is left. Returns how many there were. This finds even those that left their process
// group and lost their parents.
int kill_marked_processes(const std::string& mark);

}  // namespace fsdp_cts
