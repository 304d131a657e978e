// Sees every collective below the library: the testee makes its communicators itself and puts this between
// them and the library, which neither knows about it nor has a say in what it notes.
#pragma once

#include <memory>

#include "fsdp/comm/communicator.hpp"
#include "harness/sdk/cpp/trace.hpp"

namespace fsdp_cts::testee {

class CollectiveTap {
 public:
  // `group`, with its collectives and those of its subgroups noted from here on.
  std::shared_ptr<fsdp::Communicator> under(std::shared_ptr<fsdp::Communicator> group);
  // Where to note them: the running case's trace. Null: nowhere.
  void record_into(std::shared_ptr<sdk::Trace> trace) { *into_ = std::move(trace); }

 private:
  using Into = std::shared_ptr<std::shared_ptr<sdk::Trace>>;
  class Tapped;

  // Shared with the groups, which outlive a case.
  Into into_ = std::make_shared<std::shared_ptr<sdk::Trace>>();
};

}  // namespace fsdp_cts::testee
