#include "harness/scenario/catalogue/filter.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>

#include "harness/scenario/glob.hpp"
#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts {
namespace {

const std::vector<std::string> attribute_names = {"seed", "lane", "world", "label"};
const std::vector<std::string> lanes = {"exact", "tolerance", "structure"};
const std::vector<std::string> labels = {"cpu", "gpu", "cuda", "sim", "nccl", "compiler", "quick", "skipped"};

bool is_glob(std::string_view text) {
  return text.find_first_of("*?") != std::string_view::npos;
}

bool has_label(const Case& a_case, std::string_view pattern) {
  const auto& needs = a_case.requires_;
  return std::any_of(labels.begin(), labels.end(), [&](const std::string& label) {
    if (!matches_glob(label, pattern)) return false;
    if (label == "cpu") return needs.empty();
    if (label == "quick") return a_case.quick;
    if (label == "skipped") return a_case.skip_reason.has_value();
    return std::find(needs.begin(), needs.end(), label) != needs.end();
  });
}

bool matches(const Case& a_case, const std::string& attribute, const std::string& pattern) {
  if (attribute == "seed") return matches_glob(a_case.seed, pattern);
  if (attribute == "lane") return matches_glob(lane_name(a_case.lane), pattern);
  if (attribute == "world") return matches_glob(std::to_string(a_case.world), pattern);
  if (attribute == "label") return has_label(a_case, pattern);
  return matches_glob(a_case.id, pattern) || matches_glob(a_case.scenario, pattern);
}

// An id begins with `method` and goes on in a way not known yet: can the pattern match it?
bool agree_up_to_wildcard(std::string_view method, std::string_view pattern) {
  const std::string_view fixed = pattern.substr(0, pattern.find_first_of("*?"));
  const std::size_t both = std::min(method.size(), fixed.size());
  return method.substr(0, both) == fixed.substr(0, both);
}

void check_word(const char* kind, const std::string& value, const std::vector<std::string>& allowed) {
  if (!is_glob(value) && std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    throw std::invalid_argument(unknown_name(kind, value, allowed));
}

}  // namespace

Filter::Filter(const std::vector<std::string>& terms) {
  for (const std::string& term : terms) {
    const std::size_t colon = term.find(':');
    std::string name = colon == std::string::npos ? "" : term.substr(0, colon);
    const std::string pattern = colon == std::string::npos ? term : term.substr(colon + 1);
    if (colon != std::string::npos) check_word("filter attribute", name, attribute_names);
    if (pattern.empty()) throw std::invalid_argument("filter '" + term + "' selects by nothing");
    if (name == "lane") check_word("lane", pattern, lanes);
    if (name == "label") check_word("label", pattern, labels);
    if (name == "world" && !is_glob(pattern) && pattern.find_first_not_of("0123456789") != std::string::npos)
      throw std::invalid_argument("filter '" + term + "': a world is a number");
    auto attribute = std::find_if(attributes_.begin(), attributes_.end(),
                                  [&](const Attribute& a) { return a.name == name; });
    if (attribute == attributes_.end()) attribute = attributes_.insert(attributes_.end(), {name, {}});
    attribute->patterns.push_back(pattern);
  }
}

bool Filter::accepts(const Case& a_case) const {
  return std::all_of(attributes_.begin(), attributes_.end(), [&](const Attribute& attribute) {
    return std::any_of(attribute.patterns.begin(), attribute.patterns.end(),
                       [&](const std::string& pattern) { return matches(a_case, attribute.name, pattern); });
  });
}

bool Filter::may_accept_some_of(const std::string& method) const {
  return std::all_of(attributes_.begin(), attributes_.end(), [&](const Attribute& attribute) {
    if (!attribute.name.empty() && attribute.name != "seed") return true;
    return std::any_of(attribute.patterns.begin(), attribute.patterns.end(), [&](const std::string& pattern) {
      return attribute.name == "seed" ? matches_glob(method.substr(0, method.find('/')), pattern)
                                      : agree_up_to_wildcard(method, pattern);
    });
  });
}

FilterResult select_cases(const std::vector<Case>& cases, const std::vector<std::string>& terms) {
  FilterResult result;
  const Filter filter(terms);
  std::copy_if(cases.begin(), cases.end(), std::back_inserter(result.cases),
               [&](const Case& c) { return filter.accepts(c); });
  for (const std::string& term : terms) {
    const Filter alone({term});
    if (std::none_of(cases.begin(), cases.end(), [&](const Case& c) { return alone.accepts(c); }))
      result.unmatched.push_back(term);
  }
  return result;
}

std::vector<Case> few_of_each_scenario(std::vector<Case> cases, int count, const Machine& machine) {
  std::erase_if(cases, [&](const Case& c) { return why_not_runnable(c, machine).has_value(); });
  std::map<std::string, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < cases.size(); ++i) places[cases[i].scenario].push_back(i);
  // Of as many stretches of equal length as cases are wanted one case each: of the first the middle one, of the
  // others one at another place each time. Always the middle, and an axis whose values take turns within a
  // stretch would show the same value every time.
  constexpr double golden_ratio = 0.6180339887498949;
  const auto place_in_stretch = [](std::size_t k) {
    const double turned = 0.5 + golden_ratio * static_cast<double>(k);
    return turned - std::floor(turned);
  };
  std::set<std::size_t> kept;
  const auto wanted = static_cast<std::size_t>(count);
  for (const auto& [scenario, all] : places)
    for (std::size_t k = 0; k < wanted; ++k) {
      const double at = (static_cast<double>(k) + place_in_stretch(k)) / static_cast<double>(wanted);
      kept.insert(all[static_cast<std::size_t>(at * static_cast<double>(all.size()))]);
    }
  std::vector<Case> few;
  few.reserve(kept.size());
  for (const std::size_t place : kept) few.push_back(std::move(cases[place]));
  return few;
}

}  // namespace fsdp_cts
