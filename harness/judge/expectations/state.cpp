// unit_tree: the wrapped modules and their settings. counters: how often something happened. training_state:
// idle again.
#include <fmt/format.h>

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

void check_unit_tree(const Json& arguments, const Selection& selection, const Scene& scene,
                     Outcome& outcome) {
  const auto facts = selected_facts(scene, selection, "units");
  if (facts.empty()) return nothing_observed(outcome, "units");
  for (const auto& [place, fact] : facts) {
    const Json& units = fact->at("units");
    auto fail = [&](const char* code, const std::string& words, Json actual, Json expected) {
      outcome.findings.push_back(failure(
          scene, place, {code, describe(place) + ": " + words, std::move(actual), std::move(expected)}));
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

void check_counters(const Json& arguments, const Selection& selection, const Scene& scene, Outcome& outcome) {
  const auto facts = selected_facts(scene, selection, "counters");
  if (facts.empty()) return nothing_observed(outcome, "counters");
  for (const auto& [place, fact] : facts) {
    for (const auto& [name, wanted] : arguments.items()) {
      const Json actual = fact->at("values").value(name, Json());
      const bool bound = wanted.is_object();
      const bool right = actual.is_number_integer() &&
                         (bound ? actual.get<long>() >= wanted.at("at_least").get<long>() : actual == wanted);
      if (right) continue;
      Finding finding =
          failure(scene, place,
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

void check_training_state(const Json& arguments, const Selection& selection, const Scene& scene,
                          Outcome& outcome) {
  const auto facts = selected_facts(scene, selection, "training_state");
  if (facts.empty()) return nothing_observed(outcome, "training_state");
  for (const auto& [place, fact] : facts) {
    const Json& actual = fact->at("value");
    if (actual == arguments.at("is")) continue;
    outcome.findings.push_back(failure(
        scene, place,
        {"training_state",
         fmt::format("{} is {} and must be {}", describe(place), actual.dump(), arguments.at("is").dump()),
         actual, arguments.at("is")}));
    return;
  }
}

void check_devices(const Json& arguments, const Selection& selection, const Scene& scene, Outcome& outcome) {
  const auto facts = selected_facts(scene, selection, "devices");
  if (facts.empty()) return nothing_observed(outcome, "devices");
  const bool cpu_due = arguments.at("is") == "cpu";
  for (const auto& [place, fact] : facts) {
    for (const auto& [name, device] : fact->at("values").items()) {
      if ((device == "cpu") == cpu_due) continue;
      Finding finding =
          failure(scene, place,
                  {"device",
                   fmt::format("{}: '{}' lies on {} and must lie on the {}", describe(place), name,
                               device.get<std::string>(), arguments.at("is").get<std::string>()),
                   device, arguments.at("is")});
      finding.divergence["parameter"] = name;
      outcome.findings.push_back(std::move(finding));
      return;
    }
  }
}

}  // namespace fsdp_cts
