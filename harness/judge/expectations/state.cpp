// unit_tree: the wrapped modules and their settings. counters: how often something happened. training_state:
// idle again. devices: where parameters, or the entries of a state dict, lie. registered_parameters: what an
// optimizer is given.
// elapsed: how long something took at least.
// memory: how much more of the device's memory is in use, or was at most.
// virtual_time: how much of the communication was hidden.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "harness/judge/expectations/fact_difference.hpp"
#include "harness/judge/expectations/kinds.hpp"

namespace fsdp_cts {
namespace {

const Json* unit_named(const Json& units, const std::string& module) {
  for (const Json& unit : units) {
    if (unit.at("module") == module) return &unit;
  }
  return nullptr;
}

std::string shown(const std::string& module) {
  return module.empty() ? "the root" : "'" + module + "'";
}

}  // namespace

void check_unit_tree(const Json& arguments, const Selection& selection, const JudgeContext& context,
                     Outcome& outcome) {
  const auto facts = selected_facts(context, selection, "units");
  if (facts.empty()) return nothing_observed(outcome, "units");
  for (const auto& each : facts) {
    const Place& place = each.first;  // no structured binding: Clang 14 cannot capture one
    const Json& units = each.second->at("units");
    auto fail = [&](const char* code, const std::string& words, Json actual, Json expected) {
      outcome.findings.push_back(failure(
          context, place, {code, describe(place) + ": " + words, std::move(actual), std::move(expected)}));
    };
    for (const Json& wanted : arguments) {
      const std::string module = wanted.at("module").get<std::string>();
      const Json* unit = unit_named(units, module);
      if (!unit)
        return fail("unit_missing", shown(module) + " must be a unit and is none", "no unit", module);
      if (!wanted.contains("settings")) continue;
      const Json actual_settings = unit->value("settings", Json::object());
      for (const auto& [key, value] : wanted["settings"].items()) {
        const Json actual = actual_settings.value(key, Json());
        if (!holds_json(actual, value))
          return fail(
              "unit_setting",
              fmt::format("{} has {} = {} and must have {}", shown(module), key, actual.dump(), value.dump()),
              actual, value);
      }
    }
    for (const Json& unit : units) {
      const std::string module = unit.at("module").get<std::string>();
      if (!unit_named(arguments, module))
        return fail("unit_unexpected", shown(module) + " is a unit and must be none", module, "no unit");
    }
  }
}

void check_counters(const Json& arguments, const Selection& selection, const JudgeContext& context,
                    Outcome& outcome) {
  const auto facts = selected_facts(context, selection, "counters");
  if (facts.empty()) return nothing_observed(outcome, "counters");
  for (const auto& [place, fact] : facts) {
    for (const auto& [name, wanted] : arguments.items()) {
      const Json actual = fact->at("values").value(name, Json());
      const bool bound = wanted.is_object();
      const bool right = actual.is_number_integer() &&
                         (bound ? actual.get<long>() >= wanted.at("at_least").get<long>() : actual == wanted);
      if (right) continue;
      Finding finding =
          failure(context, place,
                  {"counter",
                   fmt::format("{}: {} is {} and must be {}{}", describe(place), name, actual.dump(),
                               bound ? "at least " : "", (bound ? wanted.at("at_least") : wanted).dump()),
                   actual.is_null() ? Json("absent") : actual, wanted});
      finding.divergence["parameter"] = name;
      outcome.findings.push_back(std::move(finding));
      return;
    }
  }
}

void check_training_state(const Json& arguments, const Selection& selection, const JudgeContext& context,
                          Outcome& outcome) {
  const auto facts = selected_facts(context, selection, "training_state");
  if (facts.empty()) return nothing_observed(outcome, "training_state");
  for (const auto& [place, fact] : facts) {
    const Json& actual = fact->at("value");
    if (actual == arguments.at("is")) continue;
    outcome.findings.push_back(failure(
        context, place,
        {"training_state",
         fmt::format("{} is {} and must be {}", describe(place), actual.dump(), arguments.at("is").dump()),
         actual, arguments.at("is")}));
    return;
  }
}

void check_devices(const Json& arguments, const Selection& selection, const JudgeContext& context,
                   Outcome& outcome) {
  const std::string what =
      arguments.contains("of") ? "devices:" + arguments["of"].get<std::string>() : "devices";
  auto facts = selected_facts(context, selection, what);
  const auto ranks = ranks_concerned(arguments, context.a_case);
  std::erase_if(facts, [&](const auto& fact) { return !ranks.contains(fact.first.rank.value_or(0)); });
  if (facts.empty()) return nothing_observed(outcome, what);
  const std::string due = arguments.at("is");
  const auto is_due = [&due](const std::string& memory) {
    if (due == "pinned") return memory == "cpu:pinned" || memory == "cpu:empty";
    return memory.starts_with("cpu") == (due == "cpu");
  };
  bool empty = false, pinned = false;
  for (const auto& [place, fact] : facts) {
    const Json& values = fact->at("values");
    if (values.empty() && !arguments.contains("count")) return nothing_observed(outcome, what);
    if (arguments.contains("count") && arguments["count"] != values.size()) {
      outcome.findings.push_back(failure(context, place,
                                         {"entries",
                                          fmt::format("{}: {} entries, {} are due", describe(place),
                                                      values.size(), arguments["count"].dump()),
                                          values.size(), arguments["count"]}));
      return;
    }
    for (const auto& [name, device] : values.items()) {
      empty |= device == "cpu:empty";
      pinned |= device == "cpu:pinned";
      if (is_due(device)) continue;
      Finding finding = failure(context, place,
                                {"device",
                                 fmt::format("{}: '{}' lies in memory of kind {} and must lie in {}",
                                             describe(place), name, device.get<std::string>(), due),
                                 device, due});
      finding.divergence["parameter"] = name;
      outcome.findings.push_back(std::move(finding));
      return;
    }
  }
  if (due == "pinned" && empty && !pinned) return nothing_observed(outcome, what);
}

void check_registered_parameters(const Json& arguments, const Selection& selection,
                                 const JudgeContext& context, Outcome& outcome) {
  const auto facts = selected_facts(context, selection, "registered_parameters");
  if (facts.empty()) return nothing_observed(outcome, "registered_parameters");
  for (const auto& each : facts) {
    const Place& place = each.first;
    const Json& values = each.second->at("values");
    std::vector<std::int64_t> sizes;
    for (const Json& shape : values) sizes.push_back(numel_of(shape.get<std::vector<std::int64_t>>()));
    std::sort(sizes.begin(), sizes.end());
    const auto differs = [&](const char* unit, const Json& actual) {
      if (!arguments.contains(unit) || arguments.at(unit) == actual) return false;
      outcome.findings.push_back(failure(
          context, place,
          {"registered_parameters",
           fmt::format("{}: the module hands {} to an optimizer, {} {} of parameters; it must be {}",
                       describe(place), values.dump(), actual.dump(), unit, arguments.at(unit).dump()),
           actual, arguments.at(unit)}));
      return true;
    };
    if (differs("count", sizes.size()) ||
        differs("elements", std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})) ||
        differs("sizes", sizes))
      return;
  }
}

// From the first clock with the one label to the last with the other, on every rank that the expectation
// names.
void check_elapsed(const Json& arguments, const Selection& selection, const JudgeContext& context,
                   Outcome& outcome) {
  const std::string from = arguments.at("labels").at(0), to = arguments.at("labels").at(1);
  std::map<int, std::int64_t> begun;
  std::map<int, std::pair<std::int64_t, Place>> ended;
  const auto ranks = ranks_concerned(arguments, context.a_case);
  for (const auto& [place, fact] : selected_facts(context, selection, "clock")) {
    const int rank = place.rank.value_or(0);
    if (!ranks.contains(rank)) continue;
    if (!fact->at("values").contains("milliseconds")) return nothing_observed(outcome, "clock");
    const auto now = fact->at("values").at("milliseconds").get<std::int64_t>();
    const std::string& label = context.program.at(place.step).label;
    if (label == from) begun.try_emplace(rank, now);
    if (label == to) ended.insert_or_assign(rank, std::pair(now, place));
  }
  if (begun.empty() || begun.size() != ended.size()) return nothing_observed(outcome, "clock");
  for (const auto& [rank, end] : ended) {
    const std::int64_t took = end.first - begun[rank];
    if (took >= arguments.at("at_least").get<std::int64_t>()) continue;
    outcome.findings.push_back(
        failure(context, end.second,
                {"elapsed",
                 fmt::format("{}: {} ms passed since '{}' and there must be at least {}",
                             describe(end.second), took, from, arguments.at("at_least").dump()),
                 took, arguments.at("at_least")}));
    return;
  }
}

// On every rank, from the first observation with the one label to the last with the other.
void check_memory(const Json& arguments, const Selection& selection, const JudgeContext& context,
                  Outcome& outcome) {
  const std::string from = arguments.at("labels").at(0), to = arguments.at("labels").at(1);
  const std::string which = arguments.at("is");
  std::map<int, std::int64_t> begun;
  std::map<int, std::pair<std::int64_t, Place>> ended;
  for (const auto& [place, fact] : selected_facts(context, selection, "memory")) {
    const Json& values = fact->at("values");
    const std::string& label = context.program.at(place.step).label;
    if (label != from && label != to) continue;
    if (!values.contains("current") || !values.contains("peak"))  // it does not count
      return nothing_observed(outcome, "memory");
    if (label == from) begun.try_emplace(place.rank.value_or(0), values.at("current").get<std::int64_t>());
    if (label == to)
      ended.insert_or_assign(place.rank.value_or(0), std::pair(values.at(which).get<std::int64_t>(), place));
  }
  if (begun.empty() || begun.size() != ended.size()) return nothing_observed(outcome, "memory");
  const auto least = arguments.at("at_least").get<std::int64_t>(),
             most = arguments.at("at_most").get<std::int64_t>();
  for (const auto& [rank, end] : ended) {
    const std::int64_t grew = end.first - begun[rank];
    if (least <= grew && grew <= most) continue;
    outcome.findings.push_back(
        failure(context, end.second,
                {"memory",
                 fmt::format("{}: {} device memory is {} bytes more than at '{}', and must be {} to {} more",
                             describe(end.second), which, grew, from, least, most),
                 grew, fmt::format("{} to {}", least, most)}));
    return;
  }
}

void check_virtual_time(const Json& arguments, const Selection& selection, const JudgeContext& context,
                        Outcome& outcome) {
  const auto facts = selected_facts(context, selection, "virtual_time");
  const auto percent = arguments.at("exposed_percent").get<std::int64_t>();
  bool communicated = false;
  for (const auto& [place, fact] : facts) {
    const Json& values = fact->at("values");
    if (!values.contains("communication") || !values.contains("exposed_communication"))  // it keeps no time
      return nothing_observed(outcome, "virtual_time");
    const auto all = values.at("communication").get<std::int64_t>(),
               exposed = values.at("exposed_communication").get<std::int64_t>();
    communicated = communicated || all > 0;
    if (100 * exposed <= percent * all) continue;
    outcome.findings.push_back(failure(
        context, place,
        {"virtual_time",
         fmt::format(
             "{}: {} of {} ns of communication are not hidden behind computation; at most {} % may be",
             describe(place), exposed, all, percent),
         exposed, percent * all / 100}));
    return;
  }
  if (!communicated) nothing_observed(outcome, "virtual_time");
}

}  // namespace fsdp_cts
