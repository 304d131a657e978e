#include "harness/judge/expectations/kinds.hpp"

#include <fmt/format.h>

namespace fsdp_cts {

const std::map<std::string, ExpectationCheck>& expectation_kinds() {
  static const std::map<std::string, ExpectationCheck> kinds = {
      {"equal", check_equal},
      {"match", check_match},
      {"differ", check_differ},
      {"dtype", check_dtype},
      {"recorded", check_recorded},
      {"seen_parameters", check_seen_parameters},
      {"error", check_error},
      {"no_error", check_no_error},
      {"warning", check_warning},
      {"no_warning", check_no_warning},
      {"collectives", check_collectives},
      {"collective_bytes", check_collective_bytes},
      {"order", check_order},
      {"transport_bytes", check_transport_bytes},
      {"layout", check_layout},
      {"unit_tree", check_unit_tree},
      {"counters", check_counters},
      {"training_state", check_training_state},
      {"devices", check_devices},
      {"elapsed", check_elapsed},
      {"memory", check_memory},
      {"virtual_time", check_virtual_time},
      {"registered_parameters", check_registered_parameters},
      {"gradient_none", check_gradient_none},
      {"requires_grad", check_requires_grad},
      {"finite", check_finite},
  };
  return kinds;
}

void check_expectation(const Json& expectation, const JudgeContext& context, Outcome& outcome) {
  const auto& kinds = expectation_kinds();
  for (const auto& [key, arguments] : expectation.items()) {
    auto kind = kinds.find(key);
    if (kind == kinds.end()) continue;
    const std::size_t before = outcome.findings.size();
    kind->second(arguments, Selection(expectation, context.program), context, outcome);
    ++outcome.counts.checks;
    for (std::size_t i = before; i < outcome.findings.size(); ++i) {
      Json divergence{{"expectation", key}};
      if (auto clause = expectation.find("clause"); clause != expectation.end())
        divergence["clause"] = *clause;
      divergence.update(outcome.findings[i].divergence);
      outcome.findings[i].divergence = std::move(divergence);
    }
    return;
  }
  outcome.findings.push_back(
      {VerdictKind::setup_error, "unknown_expectation",
       fmt::format("the scenario expects something of no known kind: {:.200}", expectation.dump())});
}

}  // namespace fsdp_cts
