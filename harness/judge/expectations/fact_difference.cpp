#include "harness/judge/expectations/fact_difference.hpp"

#include <algorithm>
#include <map>

namespace fsdp_cts {
namespace {

using ByName = std::map<std::string, Json>;

std::optional<FactDifference> objects_differ(const ByName& actual, const ByName& expected) {
  for (const auto& [key, value] : expected) {
    auto found = actual.find(key);
    if (found == actual.end()) return FactDifference{key, nullptr, value};
    if (!same_json(found->second, value)) return FactDifference{key, found->second, value};
  }
  for (const auto& [key, value] : actual) {
    if (!expected.count(key)) return FactDifference{key, value, nullptr};
  }
  return std::nullopt;
}

ByName named(const Json& object) {
  ByName result;
  for (const auto& [key, value] : object.items()) result[key] = value;
  return result;
}

// What the truth says of a unit the testee must say too: a key left out is an answer left out.
std::optional<FactDifference> unit_differs(const std::string& module, const Json& actual,
                                           const Json& expected) {
  const auto differs = [&](const Json& from, const std::string& key,
                           const Json& value) -> std::optional<FactDifference> {
    if (!from.contains(key)) return FactDifference{module + " " + key, "left out", value};
    if (!same_json(from[key], value)) return FactDifference{module + " " + key, from[key], value};
    return std::nullopt;
  };
  for (const char* key : {"class", "parameters"}) {
    if (!expected.contains(key)) continue;
    if (auto difference = differs(actual, key, expected[key])) return difference;
  }
  const Json settings = actual.value("settings", Json::object());
  const Json due = expected.value("settings", Json::object());
  for (const auto& [key, value] : due.items()) {
    if (auto difference = differs(settings, key, value)) return difference;
  }
  return std::nullopt;
}

std::optional<FactDifference> units_differ(const Json& actual, const Json& expected) {
  ByName left, right;
  for (const Json& unit : actual) left[unit.at("module").get<std::string>()] = unit;
  for (const Json& unit : expected) right[unit.at("module").get<std::string>()] = unit;
  for (const auto& [module, unit] : right) {
    if (!left.count(module)) return FactDifference{module, "no unit", "a unit"};
    const Json& other = left[module];
    if (auto difference = unit_differs(module, other, unit)) return difference;
  }
  for (const auto& [module, unit] : left) {
    if (!right.count(module)) return FactDifference{module, "a unit", "no unit"};
  }
  return std::nullopt;
}

}  // namespace

bool same_json(const Json& a, const Json& b) {
  return nlohmann::json(a) == nlohmann::json(b);
}

bool holds_json(const Json& actual, const Json& wanted) {
  if (!wanted.is_object() || !actual.is_object()) return same_json(actual, wanted);
  return std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& part) {
    return actual.contains(part.key()) && holds_json(actual[part.key()], part.value());
  });
}

std::optional<FactDifference> fact_difference(const std::string& what, const Json& actual,
                                              const Json& expected) {
  if (what == "units") return units_differ(actual.at("units"), expected.at("units"));
  if (what == "attempt") {
    const Json& a = actual.at("error");
    const Json& e = expected.at("error");
    const Json a_type = a.is_null() ? Json("no error") : a.at("type");
    const Json e_type = e.is_null() ? Json("no error") : e.at("type");
    if (a_type == e_type) return std::nullopt;
    return FactDifference{"error", a_type, e_type};
  }
  if (expected.contains("values"))
    return objects_differ(named(actual.at("values")), named(expected.at("values")));
  if (same_json(actual.value("value", Json()), expected.value("value", Json()))) return std::nullopt;
  return FactDifference{what, actual.value("value", Json()), expected.value("value", Json())};
}

}  // namespace fsdp_cts
