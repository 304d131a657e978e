#include <fmt/format.h>

#include "harness/judge/laws/laws.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

// Names seen at one step for one list.
using Seen = std::map<std::pair<int, std::string>, std::map<std::string, const Place*>>;

Seen names_by_step(const JudgeContext& context, const std::string& what) {
  Seen seen;
  for (const RankShard& shard : context.testee.shards) {
    if (shard.place.what == what)
      seen[{shard.place.step, shard.place.model}][shard.place.name] = &shard.place;
  }
  return seen;
}

void check_list(const JudgeContext& context, const std::string& what, Outcome& outcome) {
  for (const auto& [at, names] : names_by_step(context, what)) {
    const auto& [step, model] = at;
    auto description = context.a_case.models.find(model);
    if (description == context.a_case.models.end()) continue;
    for (const StateShape& state : module_state(*description)) {
      if (state.is_buffer || names.count(state.name)) continue;
      Place place{step, what, model, state.name, std::nullopt};
      outcome.findings.push_back(failure(
          context, place, {"parameter_missing", fmt::format("{}: no rank named it", describe(place))}));
      return;
    }
  }
}

}  // namespace

void parameters_are_complete(const JudgeContext& context, Outcome& outcome) {
  check_list(context, "parameters", outcome);
  check_list(context, "full_parameters", outcome);
  check_list(context, "gradients", outcome);  // one that is None is named, too
}

}  // namespace fsdp_cts
