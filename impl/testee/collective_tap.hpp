// Sees every collective below the library: the testee makes its communicators itself and puts this between
// them and the library, which neither knows about it nor has a say in what it notes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "fsdp/comm/communicator.hpp"
#include "harness/sdk/cpp/trace.hpp"

namespace fsdp_cts::testee {

class CollectiveTap {
 public:
  // `group`, with its collectives and those of its subgroups noted from here on.
  std::shared_ptr<fsdp::Communicator> under(std::shared_ptr<fsdp::Communicator> group);
  // Where to note them: the running case's trace. Null: nowhere.
  void record_into(std::shared_ptr<sdk::Trace> trace) { state_->into = std::move(trace); }
  // From now on wait that long before a unit's gradients are reduced, in the given way.
  void delay_reductions(std::chrono::milliseconds duration) { state_->before_reduction = duration; }
  void wait_by(std::function<void(std::chrono::milliseconds)> wait) { state_->wait = std::move(wait); }

 private:
  // Shared with the groups, which outlive a case.
  struct State {
    std::shared_ptr<sdk::Trace> into;
    std::chrono::milliseconds before_reduction{0};
    std::function<void(std::chrono::milliseconds)> wait;
  };
  class Tapped;

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace fsdp_cts::testee
