// collectives: how many operations of a kind each trace holds, and what each of them must look like.
// collective_bytes: how many bytes each trace adds up to. order: which of two operations comes first.
#include "harness/judge/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/expectations/kinds.hpp"

namespace fsdp_cts {
namespace {

bool selected(const Collective& event, const Json& arguments) {
  if (auto op = arguments.find("op"); op != arguments.end() && *op != event.op) return false;
  if (auto phase = arguments.find("phase"); phase != arguments.end() && *phase != event.phase) return false;
  auto size = arguments.find("group_size");
  return size == arguments.end() || size->get<std::size_t>() == event.group.size();
}

// Which selection the scenario made, in words: "all_gather in forward over groups of 2".
std::string subject(const Json& arguments) {
  std::string text = arguments.value("op", std::string("collectives"));
  if (arguments.contains("phase")) text += " in " + arguments["phase"].get<std::string>();
  if (arguments.contains("group_size"))
    text += fmt::format(" over groups of {}", arguments["group_size"].get<int>());
  return text;
}

struct Property {
  const char* name;
  Json (*of)(const Collective&);
};
const Property properties[] = {
    {"dtype", [](const Collective& event) { return Json(event.dtype); }},
    {"reduce_op",
     [](const Collective& event) { return event.reduce_op.empty() ? Json(nullptr) : Json(event.reduce_op); }},
    {"in_numel", [](const Collective& event) { return Json(event.in_numel); }},
    {"out_numel", [](const Collective& event) { return Json(event.out_numel); }},
};

// False after the first finding: one expectation tells one divergence.
bool check_trace(const Trace& trace, const Json& arguments, const Scene& scene, Outcome& outcome) {
  long count = 0;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Collective& event = trace.events[i];
    if (!selected(event, arguments)) continue;
    ++count;
    for (const Property& property : properties) {
      auto wanted = arguments.find(property.name);
      if (wanted == arguments.end() || property.of(event) == *wanted) continue;
      Finding finding =
          failure(scene, trace.place,
                  {fmt::format("collective_{}", property.name),
                   fmt::format("{}: {} must have {} {}, event {} is {}", describe(trace.place),
                               subject(arguments), property.name, wanted->dump(), i, describe(event)),
                   property.of(event), *wanted});
      finding.divergence["index"] = i;
      outcome.findings.push_back(std::move(finding));
      return false;
    }
  }
  const bool exact = arguments.contains("count");
  const long wanted = exact ? arguments["count"].get<long>() : arguments.value("at_least", 1L);
  if (exact ? count == wanted : count >= wanted) return true;
  outcome.findings.push_back(failure(scene, trace.place,
                                     {"collective_count",
                                      fmt::format("{}: {} {}, {}{} due", describe(trace.place), count,
                                                  subject(arguments), exact ? "" : "at least ", wanted),
                                      count, wanted}));
  return false;
}

}  // namespace

void check_collectives(const Json& arguments, const Selection& selection, const Scene& scene,
                       Outcome& outcome) {
  const auto all = traces(scene, selection, outcome.findings);
  if (all.empty()) return nothing_observed(outcome, "trace");
  for (const Trace& trace : all) {
    if (!check_trace(trace, arguments, scene, outcome)) return;
  }
}

void check_collective_bytes(const Json& arguments, const Selection& selection, const Scene& scene,
                            Outcome& outcome) {
  const auto all = traces(scene, selection, outcome.findings);
  if (all.empty()) return nothing_observed(outcome, "trace");
  const double wanted = arguments.at("total").get<double>();
  for (const Trace& trace : all) {
    double total = 0;
    for (const Collective& event : trace.events) {
      if (selected(event, arguments)) total += bytes_sent(event);
    }
    if (total == wanted) continue;
    outcome.findings.push_back(failure(scene, trace.place,
                                       {"collective_bytes",
                                        fmt::format("{}: {} send {} bytes, {} are due", describe(trace.place),
                                                    subject(arguments), total, wanted),
                                        total, wanted}));
    return;
  }
}

void check_order(const Json& arguments, const Selection& selection, const Scene& scene, Outcome& outcome) {
  const auto all = traces(scene, selection, outcome.findings);
  if (all.empty()) return nothing_observed(outcome, "trace");
  for (const Trace& trace : all) {
    // Where the first event stands that is meant by "first" or "then".
    const auto position = [&](const char* which) {
      const Json& wanted = arguments.at(which);
      return std::find_if(trace.events.begin(), trace.events.end(), [&](const Collective& event) {
        return selected(event, arguments) && wanted.at("op") == event.op && wanted.at("unit") == event.unit;
      });
    };
    const auto shown = [&](const char* which) {
      const Json& wanted = arguments.at(which);
      const auto unit = wanted.at("unit").get<std::string>();
      return fmt::format("the {} of {}", wanted.at("op").get<std::string>(),
                         unit.empty() ? "the root" : "'" + unit + "'");
    };
    const auto first = position("first"), then = position("then");
    std::string wrong;
    for (const auto& [event, which] : {std::pair(first, "first"), std::pair(then, "then")}) {
      if (event == trace.events.end()) wrong = shown(which) + " is not in it";
    }
    if (wrong.empty() && then < first)
      wrong = fmt::format("{} is event {} and {} event {}", shown("then"), then - trace.events.begin(),
                          shown("first"), first - trace.events.begin());
    if (wrong.empty()) continue;
    outcome.findings.push_back(
        failure(scene, trace.place,
                {"collective_order", fmt::format("{}: {} must come before {}, but {}", describe(trace.place),
                                                 shown("first"), shown("then"), wrong)}));
    return;
  }
}

}  // namespace fsdp_cts
