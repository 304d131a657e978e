#include <fmt/format.h>

#include "harness/judge/laws/laws.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

// Names seen at one step for one list.
using Seen = std::map<std::pair<int, std::string>, std::map<std::string, const Place*>>;

Seen names_by_step(const Scene& scene, const std::string& what) {
  Seen seen;
  for (const Held& held : scene.testee.held) {
    if (held.place.what == what) seen[{held.place.step, held.place.model}][held.place.name] = &held.place;
  }
  return seen;
}

void check_list(const Scene& scene, const std::string& what, Outcome& outcome) {
  for (const auto& [at, names] : names_by_step(scene, what)) {
    const auto& [step, model] = at;
    auto description = scene.a_case.models.find(model);
    if (description == scene.a_case.models.end()) continue;
    for (const StateShape& state : module_state(*description)) {
      if (state.is_buffer || names.count(state.name)) continue;
      Place place{step, what, model, state.name, std::nullopt};
      outcome.findings.push_back(
          failure(scene, place, {"parameter_missing", fmt::format("{}: no rank named it", describe(place))}));
      return;
    }
  }
}

}  // namespace

void parameters_are_complete(const Scene& scene, Outcome& outcome) {
  check_list(scene, "parameters", outcome);
  check_list(scene, "full_parameters", outcome);
  check_list(scene, "gradients", outcome);  // one that is None is named, too
}

}  // namespace fsdp_cts
