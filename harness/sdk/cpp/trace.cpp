#include "harness/sdk/cpp/trace.hpp"

#include <utility>

namespace fsdp_cts::sdk {

void Trace::collective(const CollectiveEvent& event) {
  note({{"op", event.op},
        {"dtype", event.dtype},
        {"reduce_op", event.reduce_op ? Json(*event.reduce_op) : Json()},
        {"in_numel", event.in_numel},
        {"out_numel", event.out_numel},
        {"group", event.group},
        {"unit", event.unit ? Json(*event.unit) : Json()}});
}

void Trace::compute(const std::string& path) {
  note({{"op", "compute"}, {"unit", path}});
  if (on_compute) on_compute(path);
}

void Trace::enter(std::optional<std::string> phase) {
  const std::lock_guard lock(mutex_);
  phase_ = std::move(phase);
}

Json Trace::drain() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, Json::array());
}

void Trace::note(Json event) {
  const std::lock_guard lock(mutex_);
  if (!phase_) return;
  event["phase"] = *phase_;
  events_.push_back(std::move(event));
}

}  // namespace fsdp_cts::sdk
