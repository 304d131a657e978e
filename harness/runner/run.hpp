// What came back from acting out one case on one implementation. Filled by the runner, read by the judge; no
// judgement here.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/protocol/tensor.hpp"

namespace fsdp_cts {

// How a rank ended the case.
enum class RankEnd {
  done,
  error,  // exception outside an attempt
  unsupported,
  crash,           // process ended: signal or exit code without `done`
  hang,            // deadline of a verb or of the case
  protocol_error,  // frames, order, ids, oversize; `detail_code` tells which
  not_started,     // could not be spawned, or never said hello
  aborted,         // killed by the runner because another rank failed first
};

struct Observation {
  int rank = 0;  // the sender; for the oracle each entry's own "rank" counts
  int step = 0;
  std::optional<int> iteration;
  std::string label;
  nlohmann::ordered_json entries;
  TensorMap tensors;  // contents of the message's file
};

// What the device found in one step (PROTOCOL.md §9): its word, below the implementation.
struct DeviceFinding {
  int rank = 0;
  int step = 0;
  std::string code;                // "stream_race", "use_after_free", "host_read_unfinished"
  nlohmann::ordered_json message;  // as it came
};

// What one step of training took of the device (PROTOCOL.md §9), by its own count; of the reference, what it took on the CPU.
struct DeviceUse {
  int rank = 0;
  int step = 0;
  nlohmann::ordered_json message;  // as it came
  // At most, beyond what was there before; 0 where nobody counted.
  long bytes_taken() const { return message.value("peak_bytes", 0L) - message.value("begin_bytes", 0L); }
};

struct RankReport {
  int rank = 0;
  RankEnd end = RankEnd::not_started;
  std::string detail_code;       // stable: "signal", "exit", "verb_deadline", "oversize_frame", …
  std::string detail;            // sentence for a person: signal name, reason, exception text
  nlohmann::ordered_json error;  // {type, message, phase} for `error`
  int last_step = -2;            // last progress: −1 rendezvous, −2 none
  std::string last_verb;
  std::string captured_output;  // tail of stdout and stderr, capped
  std::string stacks;           // on hang
  // Operators given to the device, as that counts them; nothing: nobody counted.
  std::optional<long> launches;
  // Memory of the device that the case did not give back, as that counts it.
  std::optional<long> kept_bytes;
};

struct CaseRun {
  std::string case_id;
  nlohmann::ordered_json hello;  // rank 0's
  std::vector<RankReport> ranks;
  std::vector<Observation> observations;
  std::vector<DeviceFinding> findings;
  std::vector<DeviceUse> uses;
  std::string blame;  // on anything but all done/unsupported: one sentence naming rank, verb, last
                      // collective, who waited for whom
  std::chrono::duration<double> seconds{};
  // Bytes that all ranks together sent over TCP during the case, by the kernel's count; nothing where the
  // backend is another than Gloo, or nobody could count.
  std::optional<std::uint64_t> sent;
  // A rank that has closed a connection which it had when the case began, and with it the kernel's count: why there is no `sent`.
  std::optional<int> closed_connection;
};

}  // namespace fsdp_cts
