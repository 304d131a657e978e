// The library's record of its collectives, as the protocol wants it.
#pragma once

#include <memory>
#include <vector>

#include "fsdp/comm/recording.hpp"
#include "harness/sdk/cpp/operations.hpp"

namespace fsdp_cts::testee {

class CollectiveTrace {
 public:
  // Collectives of `group` and its subgroups are recorded from here on.
  std::shared_ptr<fsdp::Communicator> record(std::shared_ptr<fsdp::Communicator> group);
  // Everything since the last call.
  std::vector<sdk::TraceEvent> drain();
  // While it lives, what the observer itself causes leaves no trace.
  class Silence {
   public:
    explicit Silence(CollectiveTrace& trace) : trace_(trace) { trace_.note(); }
    Silence(const Silence&) = delete;
    Silence& operator=(const Silence&) = delete;
    ~Silence() { trace_.source_->take(); }

   private:
    CollectiveTrace& trace_;
  };

 private:
  void note();

  std::shared_ptr<fsdp::Trace> source_ = std::make_shared<fsdp::Trace>();
  std::vector<sdk::TraceEvent> noted_;  // taken from the source, not yet drained
};

}  // namespace fsdp_cts::testee
