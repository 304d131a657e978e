// recorded: dtypes that module bodies saw. seen_parameters: names and shapes of parameters that module bodies
// saw.
#include <fmt/format.h>

#include "harness/judge/expectations/fact_difference.hpp"
#include "harness/judge/expectations/kinds.hpp"

namespace fsdp_cts {

void check_recorded(const Json& arguments, const Selection& selection, const JudgeContext& context,
                    Outcome& outcome) {
  const auto facts = selected_facts(context, selection, "recorded");
  if (facts.empty()) return nothing_observed(outcome, "recorded");
  for (const auto& [place, fact] : facts) {
    const Json& values = fact->at("values");
    for (const auto& [key, wanted] : arguments.items()) {
      auto found = values.find(key);
      const Json actual = found == values.end() ? Json(nullptr) : *found;
      if (same_json(actual, wanted)) continue;
      auto text = [](const Json& dtype) {
        return dtype.is_null() ? std::string("nothing") : dtype.get<std::string>();
      };
      Finding finding = failure(context, place,
                                {"recorded_dtype",
                                 fmt::format("{}: the module body saw {} for '{}' and must see {}",
                                             describe(place), text(actual), key, text(wanted)),
                                 text(actual), text(wanted)});
      finding.divergence["parameter"] = key;
      outcome.findings.push_back(std::move(finding));
      return;
    }
  }
}

void check_seen_parameters(const Json& arguments, const Selection& selection, const JudgeContext& context,
                           Outcome& outcome) {
  const std::string key = arguments.at("as").get<std::string>();
  const auto facts = selected_facts(context, selection, "seen_parameters");
  if (facts.empty()) return nothing_observed(outcome, "seen_parameters");
  for (const auto& [place, fact] : facts) {
    const Json actual = fact->at("values").value(key, Json());
    if (same_json(actual, arguments.at("is"))) continue;
    outcome.findings.push_back(
        failure(context, place,
                {"seen_parameters",
                 fmt::format("{}: inside '{}' the module body saw {} and must see {}", describe(place), key,
                             actual.dump(), arguments.at("is").dump()),
                 actual, arguments.at("is")}));
    return;
  }
}

}  // namespace fsdp_cts
