#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "harness/judge/entries.hpp"
#include "harness/judge/laws/laws.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

// Bytes of the units of one plan when they are whole, the root's apart.
struct UnitBytes {
  long root = 0;
  std::vector<long> others;  // the largest first
  long all() const { return std::accumulate(others.begin(), others.end(), root); }
  long largest() const { return std::max(root, others.empty() ? 0 : others.front()); }
  long of_largest(std::size_t count) const {
    return std::accumulate(others.begin(),
                           others.begin() + static_cast<std::ptrdiff_t>(std::min(count, others.size())), 0L);
  }
};

// Rows filled up for every rank, and room for alignment. Nothing computes in less than it is counted with here.
long whole_bytes(const StateShape& parameter, int world, long width) {
  const long numel = numel_of(parameter.shape);
  const long row =
      parameter.shape.empty() || parameter.shape[0] == 0 ? 1 : numel / static_cast<long>(parameter.shape[0]);
  return (numel + row * world + 16) * width;
}

bool has_verb(const Case& a_case, const std::vector<std::string>& verbs) {
  return std::any_of(a_case.program.begin(), a_case.program.end(), [&](const Json& step) {
    return std::find(verbs.begin(), verbs.end(), step.value("verb", "")) != verbs.end();
  });
}

// Whether a unit may stay whole when its forward is over.
bool keeps(const Json& unit) {
  const std::string strategy = unit.value("sharding_strategy", "");
  if (strategy == "SHARD_GRAD_OP" || strategy == "NO_SHARD" || strategy == "_HYBRID_SHARD_ZERO2") return true;
  const auto reshard = unit.find("reshard_after_forward");
  return reshard != unit.end() && *reshard != true && !reshard->is_null();
}

struct MemoryBounds {
  long forward = 0;
  long backward = 0;
};

// What FSDP may have on a device beside what the model itself takes.
MemoryBounds bounds_of(const JudgeContext& context) {
  const Case& a_case = context.a_case;
  const long width = a_case.program.dump().find("float64") == std::string::npos ? 4 : 8;
  // With these the program itself decides what is whole.
  const bool by_hand = has_verb(
      a_case, {"unshard", "set_forward_prefetch", "set_backward_prefetch", "set_reshard_after_forward",
               "set_reshard_after_backward", "set_unshard_in_backward", "enter"});
  MemoryBounds bounds;
  for (const auto& [model, description] : a_case.models.items()) {
    const Json* const plan = context.plan.plan(model);
    const bool known = plan != nullptr && plan->contains("units");
    bool all_at_once = by_hand || !known;
    std::map<const Json*, long> by_unit;
    UnitBytes units;
    long shards = 0;
    for (const StateShape& state : module_state(description)) {
      if (state.is_buffer) continue;
      const Json* const unit = known ? context.plan.unit_of(model, state.name) : nullptr;
      const long bytes = whole_bytes(state, context.plan.world(), width);
      by_unit[unit] += bytes;
      shards += bytes / std::max(1L, static_cast<long>(context.plan.shard_groups(model, state.name).size()));
    }
    for (const auto& [unit, bytes] : by_unit) {
      const bool is_root = unit == nullptr || std::ranges::count(unit_modules(*unit), std::string()) > 0;
      if (unit != nullptr && keeps(*unit)) all_at_once = true;
      if (is_root)
        units.root += bytes;
      else
        units.others.push_back(bytes);
    }
    std::ranges::sort(units.others, std::greater());
    // Units that stay do not wait for each other: the next is gathered while the last is copied out.
    const long buffer = units.largest();
    const long whole = all_at_once ? units.all() + 2 * buffer : units.root + units.of_largest(2) + buffer;
    bounds.forward += whole;
    // A gradient on its way: as it was made, and packed for its reduction; and the shards that come of all of them.
    bounds.backward += whole + 2 * units.largest() + shards;
  }
  return bounds;
}

}  // namespace

void memory_is_within_bounds(const JudgeContext& context, Outcome& outcome) {
  const Evidence* const reference = context.truths.reference.evidence;
  if (reference == nullptr || reference->memory.empty() || context.run.uses.empty()) return;
  const MemoryBounds bounds = bounds_of(context);
  for (const DeviceUse& use : context.run.uses) {
    const auto model = reference->memory.find({use.step, use.rank});
    if (model == reference->memory.end() || !context.program.contains(use.step)) continue;
    const bool forward = context.program.at(use.step).verb == "forward";
    const long taken = use.bytes_taken();
    // Kernels of a device keep some more than those of the CPU, a tenth at most.
    const long allowed =
        model->second + model->second / 10 + (forward ? bounds.forward : bounds.backward) + 8192;
    if (taken <= allowed) continue;
    Place place{use.step, "device", "", "", use.rank};
    Finding finding = broken_law("G-14", "memory_exceeded", place, context.program,
                                 fmt::format("rank {} takes {} bytes of the device in this step, and {} are "
                                             "enough for the model and for the units "
                                             "that may be whole at once",
                                             use.rank, taken, allowed));
    finding.divergence["actual"] = taken;
    finding.divergence["expected"] = allowed;
    outcome.findings.push_back(std::move(finding));
    return;
  }
}

}  // namespace fsdp_cts
