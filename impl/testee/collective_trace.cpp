#include "impl/testee/collective_trace.hpp"

#include <utility>

namespace fsdp_cts::testee {
namespace {

const char* name_of(fsdp::CollectiveKind kind) {
  switch (kind) {
    case fsdp::CollectiveKind::all_gather:
      return "all_gather";
    case fsdp::CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case fsdp::CollectiveKind::all_reduce:
      return "all_reduce";
    case fsdp::CollectiveKind::broadcast:
      return "broadcast";
  }
  return "other";
}

const char* name_of(fsdp::Phase phase) {
  switch (phase) {
    case fsdp::Phase::init:
      return "init";
    case fsdp::Phase::forward:
      return "forward";
    case fsdp::Phase::backward:
      return "backward";
    case fsdp::Phase::state_dict:
      return "state_dict";
    case fsdp::Phase::other:
      return "other";
  }
  return "other";
}

std::optional<std::string> reduction_of(const fsdp::CollectiveEvent& event) {
  if (event.kind != fsdp::CollectiveKind::reduce_scatter && event.kind != fsdp::CollectiveKind::all_reduce)
    return std::nullopt;
  switch (event.reduction.op) {
    case fsdp::ReduceOp::sum:
    case fsdp::ReduceOp::premul_sum:
      return "sum";
    case fsdp::ReduceOp::avg:
      return "avg";
    case fsdp::ReduceOp::max:
      return "max";
  }
  return std::nullopt;
}

}  // namespace

std::shared_ptr<fsdp::Communicator> CollectiveTrace::record(std::shared_ptr<fsdp::Communicator> group) {
  return fsdp::recording(std::move(group), source_);
}

std::vector<sdk::TraceEvent> CollectiveTrace::drain() {
  note();
  return std::exchange(noted_, {});
}

void CollectiveTrace::note() {
  for (const fsdp::CollectiveEvent& event : source_->take()) {
    noted_.push_back({name_of(event.kind), name_of(event.site.phase), sdk::dtype_name(event.dtype),
                      reduction_of(event), event.in_numel, event.out_numel,
                      std::vector<int>(event.ranks.begin(), event.ranks.end()),
                      event.site.has_unit ? std::optional(event.site.unit) : std::nullopt});
  }
}

}  // namespace fsdp_cts::testee
