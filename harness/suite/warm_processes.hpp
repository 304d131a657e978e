// What runs that follow one another in one process share: fork servers that have loaded a testee's libraries, and the
// oracle's processes.
#pragma once

#include <list>
#include <memory>

#include "harness/runner/session.hpp"

namespace fsdp_cts {

class WarmProcesses {
 public:
  // The session of the run before if its options are the same; otherwise that one ends, and this is a new one. Throws
  // what Session does.
  Session& session(const SessionOptions& options);

  // One object for equal testees, by which a session knows its ranks. For those that the runner starts itself.
  const Testee& keep(const Testee& testee);

  // Says bye to what is left, and waits.
  void close();

 private:
  SessionOptions options_;
  std::list<Testee> testees_;         // outlive the session
  std::unique_ptr<Session> session_;  // none before the first run
};

}  // namespace fsdp_cts
