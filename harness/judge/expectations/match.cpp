// match: two instances of the testee itself agree, observation by observation.
// differ: two observations (labels) or two instances must not be equal; with `only`, exactly the named
// tensors differ. It counts no elements: they were held against nothing that says what is right.
#include <fmt/format.h>

#include <tuple>

#include "harness/judge/expectations/kinds.hpp"
#include "harness/judge/expectations/tensor_difference.hpp"
#include "harness/protocol/pattern.hpp"

namespace fsdp_cts {
namespace {

// Observations of one side, numbered within what, name, rank: the k-th of one side is compared with the k-th
// of the other.
struct SideKey {
  std::string what, name;
  int ordinal;
  std::optional<int> rank;
  auto operator<=>(const SideKey&) const = default;
};
using Side = std::map<SideKey, const Place*>;

template <class Belongs>
Side side_of(const JudgeContext& context, const std::vector<std::string>& whats, const Belongs& belongs) {
  Side side;
  std::map<std::tuple<std::string, std::string, std::optional<int>>, int> seen;
  for (const auto& [place, value] : context.testee.values) {
    if (std::find(whats.begin(), whats.end(), place.what) == whats.end() || !belongs(place)) continue;
    side[{place.what, place.name, seen[{place.what, place.name, place.rank}]++, place.rank}] = &place;
  }
  return side;
}

struct Pair {
  const Place* first;
  const Place* second;
};

// A side that was observed once meets every observation of the other; one that holds a value for all ranks
// meets every rank.
std::vector<const Place*> partners(const Side& side, SideKey key) {
  SideKey second = key;
  second.ordinal = 1;
  if (key.ordinal > 0 && !side.count(second)) key.ordinal = 0;
  if (auto same = side.find(key); same != side.end()) return {same->second};
  const bool ranked = key.rank.has_value();
  key.rank.reset();
  if (ranked) {
    auto shared = side.find(key);
    return shared == side.end() ? std::vector<const Place*>{} : std::vector<const Place*>{shared->second};
  }
  std::vector<const Place*> result;
  for (auto it = side.upper_bound(key); it != side.end(); ++it) {
    if (it->first.what != key.what || it->first.name != key.name || it->first.ordinal != key.ordinal) break;
    result.push_back(it->second);
  }
  return result;
}

struct Sides {
  Side first, second;
  std::string first_name, second_name;
};

Sides sides_from(const Json& arguments, const Selection& selection, const JudgeContext& context) {
  const auto whats = strings_of(arguments.at("what"));
  if (auto labels = arguments.find("labels"); labels != arguments.end()) {
    auto with_label = [&](const std::string& label) {
      return side_of(context, whats, [&](const Place& place) {
        return selection.takes(place) && context.program.at(place.step).label == label;
      });
    };
    const auto names = strings_of(*labels);
    return {with_label(names.at(0)), with_label(names.at(1)), "'" + names[0] + "'", "'" + names[1] + "'"};
  }
  auto of_model = [&](const std::string& model) {
    return side_of(context, whats, [&](const Place& place) {
      return selection.takes_step(place.step) && place.model == model;
    });
  };
  const auto names = strings_of(arguments.at("between"));
  return {of_model(names.at(0)), of_model(names.at(1)), "model '" + names[0] + "'",
          "model '" + names[1] + "'"};
}

// Calls visit(first place, second place, difference, values) for every pair; reports what has no partner.
template <class Visit>
void for_pairs(const Sides& sides, const Json& arguments, const JudgeContext& context, Outcome& outcome,
               const Visit& visit) {
  const Json tolerance = arguments.value("tolerance", Json());
  bool any = false;
  auto lonely = [&](const Place& place, const std::string& other) {
    outcome.findings.push_back(
        failure(context, place,
                {"missing_value", fmt::format("{} has no counterpart in {}", describe(place), other)}));
  };
  for (const auto& [key, place] : sides.first) {
    const auto others = partners(sides.second, key);
    if (others.empty()) return lonely(*place, sides.second_name);
    for (const Place* other : others) {
      any = true;
      const Value& a = context.testee.values.at(*place);
      const Value& b = context.testee.values.at(*other);
      Difference difference;
      if (!presence_differs(a, b) && !a.none) {
        difference = compare(a.tensor, b.tensor,
                             tolerance_from(tolerance, context.a_case.lane, a.tensor.dtype, b.tensor.dtype),
                             arguments.value("check_dtype", true));
      }
      visit(*place, a, b, difference);
    }
  }
  for (const auto& [key, place] : sides.second) {
    if (partners(sides.first, key).empty()) return lonely(*place, sides.first_name);
  }
  if (!any) nothing_observed(outcome, fmt::format("{} on both sides", arguments.at("what").dump()));
}

}  // namespace

void check_match(const Json& arguments, const Selection& selection, const JudgeContext& context,
                 Outcome& outcome) {
  const Sides sides = sides_from(arguments, selection, context);
  bool reported = false;
  for_pairs(sides, arguments, context, outcome,
            [&](const Place& place, const Value& a, const Value& b, const Difference& difference) {
              if (!presence_differs(a, b) && !a.none) count_comparison(outcome, difference);
              if (reported || (!difference && !presence_differs(a, b))) return;
              reported = true;
              outcome.findings.push_back(tensor_failure(context, place, a, b, difference, sides.second_name));
            });
}

void check_differ(const Json& arguments, const Selection& selection, const JudgeContext& context,
                  Outcome& outcome) {
  const Sides sides = sides_from(arguments, selection, context);
  const bool limited = arguments.contains("only");
  const Pattern only(arguments.value("only", std::string(".*")));
  long differing = 0, named = 0;
  bool reported = false;
  const Place* first = nullptr;
  for_pairs(sides, arguments, context, outcome,
            [&](const Place& place, const Value& a, const Value& b, const Difference& difference) {
              if (!first) first = &place;
              const bool differs = difference || presence_differs(a, b);
              const bool should = only.found_in(place.name);
              named += should;
              if (differs && should) ++differing;
              if (reported || !limited || differs == should) return;
              reported = true;
              outcome.findings.push_back(
                  should ? failure(context, place,
                                   {"not_different", fmt::format("{} is the same in {} and must not be",
                                                                 describe(place), sides.second_name)})
                         : tensor_failure(context, place, a, b, difference, sides.second_name));
            });
  if (limited && first && named == 0)
    nothing_observed(outcome, fmt::format("anything in {} named '{}'", arguments.at("what").dump(),
                                          arguments.at("only").get<std::string>()));
  if (!limited && first && differing == 0) {
    outcome.findings.push_back(
        failure(context, *first,
                {"not_different", fmt::format("{} and {} agree in every {} and must not", sides.first_name,
                                              sides.second_name, arguments.at("what").dump())}));
  }
}

}  // namespace fsdp_cts
