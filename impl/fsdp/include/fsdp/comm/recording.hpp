#pragma once
// A decorator that notes every collective in order of issue, then passes it on.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

enum class CollectiveKind { all_gather, reduce_scatter, all_reduce, broadcast };

struct CollectiveEvent {
  CollectiveKind kind;
  Reduction reduction;  ///< of reduce_scatter and all_reduce
  at::ScalarType dtype;
  int64_t in_numel;
  int64_t out_numel;
  std::vector<int64_t> ranks;  ///< world ranks of the group
  CallSite site;
};

/// An append-only list shared by a group and all its subgroups. Any thread may call anything.
class Trace {
 public:
  void append(CollectiveEvent event);
  /// Everything since the last call.
  std::vector<CollectiveEvent> take();

 private:
  std::mutex mutex_;
  std::vector<CollectiveEvent> events_;
};

/// Subgroups of a recording group record into the same trace. Threads: as `inner`.
std::shared_ptr<Communicator> recording(std::shared_ptr<Communicator> inner, std::shared_ptr<Trace> trace);

}  // namespace fsdp
