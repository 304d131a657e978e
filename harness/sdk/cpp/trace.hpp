// What happened on this rank in a case, in order: collectives, as a tap below the library sees them, and
// where layers begin to compute. The SDK owns it and stamps each event with the phase of the verb that is
// running: neither the adapter nor the library says when something happened.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "harness/sdk/cpp/case.hpp"

namespace fsdp_cts::sdk {

struct CollectiveEvent {  // PROTOCOL.md §5 `trace`
  std::string op, dtype;
  std::optional<std::string> reduce_op;
  std::int64_t in_numel = 0, out_numel = 0;
  std::vector<int> group;           // world ranks, in group order
  std::optional<std::string> unit;  // for whom, as the library says
};

// Any thread may note an event: an accelerator's backward runs on its own.
class Trace {
 public:
  // For taps: a collective is about to be handed to the backend.
  void collective(const CollectiveEvent& event);
  // For layers: the forward, or the backward, of the module at this path is about to compute.
  void compute(const std::string& path);

  // For the interpreter. Called wherever a layer begins to compute, in its pass.
  std::function<void(const std::string& path)> on_compute;

  // For the interpreter. Everything from here on belongs to this phase; without one nothing is noted, because
  // what runs is the observer and not the program.
  void enter(std::optional<std::string> phase);
  // The protocol's events since the last call.
  Json drain();

 private:
  void note(Json event);

  std::mutex mutex_;
  std::optional<std::string> phase_ = "other";
  Json events_ = Json::array();
};

}  // namespace fsdp_cts::sdk
