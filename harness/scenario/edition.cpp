#include "harness/scenario/edition.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace fsdp_cts {
namespace {

constexpr std::array bounds = {"since", "until"};

// The leading numbers of "2.15.0+cu130".
std::vector<int> numbers_of(std::string_view version) {
  std::vector<int> numbers;
  while (!version.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), number);
    if (error != std::errc{} || number < 0) break;
    numbers.push_back(number);
    version.remove_prefix(static_cast<std::size_t>(end - version.data()));
    if (version.empty() || version.front() != '.') break;
    version.remove_prefix(1);
  }
  return numbers;
}

// Rules that the reference follows by edition and that no line of a scenario has to repeat.
struct ChangedRule {
  Edition since;
  bool (*concerns)(const Case&);
};

// FS-MP-10: without a reduce dtype FSDP2 reduces in the original dtype instead of the compute dtype.
bool reduces_without_reduce_dtype(const Case& a_case) {
  return std::any_of(a_case.plans.begin(), a_case.plans.end(), [](const Json& plan) {
    if (plan.value("api", "") != "fully_shard") return false;
    const Json& units = plan.at("units");
    return std::any_of(units.begin(), units.end(), [](const Json& unit) {
      const Json policy = unit.value("mixed_precision", Json());
      return policy.is_object() && !policy.value("param_dtype", Json()).is_null() &&
             policy.value("reduce_dtype", Json()).is_null();
    });
  });
}

const std::vector<ChangedRule>& changed_rules() {
  static const std::vector<ChangedRule> table = {{{2, 15}, reduces_without_reduce_dtype}};
  return table;
}

}  // namespace

std::optional<Edition> edition_of(const std::string& version) {
  const std::vector<int> numbers = numbers_of(version);
  if (numbers.size() < 2) return std::nullopt;
  return Edition{numbers[0], numbers[1]};
}

bool version_within(const std::string& version, const std::string& text) {
  const std::vector<int> actual = numbers_of(version);
  std::istringstream comparisons(text);
  bool any = false, within = true;
  for (std::string each; comparisons >> each;) {
    const std::size_t length = each.find_first_not_of("<>=");
    const std::string sign = each.substr(0, length);
    std::vector<int> named =
        length == std::string::npos ? std::vector<int>() : numbers_of(each.substr(length));
    if (named.empty() || (sign != "<" && sign != "<=" && sign != ">" && sign != ">=" && sign != "=="))
      throw std::invalid_argument("'" + each + "' is no comparison of versions such as >=2.13 or <2.15.2");
    std::vector<int> known = actual;
    known.resize(named.size());
    any = true;
    within = within && (sign == "<"    ? known < named
                        : sign == "<=" ? known <= named
                        : sign == ">"  ? known > named
                        : sign == ">=" ? known >= named
                                       : known == named);
  }
  if (!any) throw std::invalid_argument("no comparison of versions, such as >=2.13 <2.15");
  return within;
}

bool holds_in(const Json& expectation, Edition edition) {
  const auto bound = [&](const char* key) { return edition_of(expectation.value(key, "")); };
  const auto since = bound("since"), until = bound("until");
  return (!since || edition >= *since) && (!until || edition < *until);
}

Case in_edition(const Case& a_case, Edition edition) {
  Case result = a_case;
  result.expect = Json::array();
  for (const Json& expectation : a_case.expect)
    if (holds_in(expectation, edition)) result.expect.push_back(expectation);
  return result;
}

bool changed_between(const Case& a_case, Edition one, Edition other) {
  const auto [first, last] = std::minmax(one, other);
  const auto between = [first = first, last = last](Edition change) {
    return first < change && change <= last;
  };
  for (const ChangedRule& rule : changed_rules())
    if (between(rule.since) && rule.concerns(a_case)) return true;
  return std::any_of(a_case.expect.begin(), a_case.expect.end(), [&](const Json& expectation) {
    return std::any_of(bounds.begin(), bounds.end(), [&](const char* bound) {
      const auto change = edition_of(expectation.value(bound, ""));
      return change && between(*change);
    });
  });
}

}  // namespace fsdp_cts
