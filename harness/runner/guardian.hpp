// Cleans up after a runner that cannot do it itself any more, killed by SIGKILL for instance: a small process
// that does nothing until the runner is gone. Then it kills every process group that was announced, every
// process that carries the session's mark in its environment, and removes the session's folder.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <set>
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

  // Async-signal-safe; a guardian that has died itself is not missed here. A child announces its own group
  // between fork and exec, so that none is ever unknown.
  void announce(pid_t process_group) const noexcept;
  void forget(pid_t process_group) const noexcept;

 private:
  int socket_ = -1;
  pid_t process_ = -1;
};

// The processes whose environment has an entry that begins with a mark. This finds even those that left their
// process group and lost their parents.
class MarkedProcesses {
 public:
  explicit MarkedProcesses(std::string mark) : mark_(std::move(mark)) {}

  // Kills (SIGKILL) and reaps what is there now, without waiting for its death: to be called again until it
  // says true, because death takes its time and a process may fork while it is being looked for.
  bool gone();
  // Calls gone() for at most half a second.
  void end();

 private:
  std::string mark_;
  std::set<pid_t> dying_;  // the dead have no environment any more
};

}  // namespace fsdp_cts
