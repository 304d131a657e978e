// The testee's main loop: connect, hello, cases, bye. PROTOCOL.md §1-§4.
#pragma once

#include "harness/sdk/cpp/interpreter.hpp"

namespace fsdp_cts::sdk {

// Messages of one case to the runner.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void progress(int step, const std::string& verb) = 0;
  // Writes the tensor file first. `file_stem` must be unique within the case.
  virtual void observation(const Observation& observation, int rank, const std::string& file_stem) = 0;
  // What the device found in that step, before the step's observation.
  virtual void finding(int step, int rank, const Json& finding) = 0;
  // What the device was used for in that step.
  virtual void device_use(int step, int rank, const Json& use) = 0;
  // For `done`: operators that the device was given in this case, and its memory that was not given back.
  virtual void launches(std::uint64_t count) = 0;
  virtual void kept_bytes(std::int64_t bytes) = 0;
};

// A process that speaks the protocol. Operations are served through one of these; the oracle is another.
class Testee {
 public:
  virtual ~Testee() = default;
  virtual Identity identity() const = 0;
  virtual std::optional<std::string> unsupported(const Case& a_case) const = 0;
  // Returns at the end of the case. A FailedStep that leaves it becomes the protocol's `error`.
  virtual void act(const Case& a_case, Outbox& outbox) = 0;
};

struct FailedStep {
  int step = -1;
  ErrorReport error;
};

// Whether what a step with this verb took of the device is told.
inline bool use_is_told(const std::string& verb) {
  return verb == "forward" || verb == "backward";
}

// One rank's operations as such a process; `operations` outlives it.
std::unique_ptr<Testee> rank_testee(Operations& operations, int rank);

// Serve until `bye` or until the socket closes; the process's exit status. Without FSDP_CTS_SOCKET it
// explains itself and returns 2. Sets one intra-op and one inter-op thread.
int serve(Operations& operations);
int serve(Testee& testee);
// The last line of a testee's main. Ends the process without LibTorch's tear-down of its operators, which
// is two fifths of what a rank costs that has nothing to do; what is the testee's own must be destroyed by
// then. Where a sanitizer looks for leaks at the end, it ends as ever.
[[noreturn]] void leave(int status);
// As `serve`, over a connected descriptor (tests).
int serve_descriptor(Testee& testee, int descriptor, int rank, const std::string& token);

}  // namespace fsdp_cts::sdk
