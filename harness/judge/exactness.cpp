#include "harness/judge/exactness.hpp"

#include <fmt/format.h>

#include <set>

#include "harness/judge/compare.hpp"
#include "harness/judge/entries.hpp"
#include "harness/judge/program_map.hpp"

namespace fsdp_cts {

std::optional<Finding> first_inexact(const Case& a_case, const Evidence& native, const Evidence& widened) {
  const ProgramMap program(a_case.program);
  std::set<std::string> compared;
  for (const Json& expectation : a_case.expect) {
    if (!expectation.contains("equal")) continue;
    for (const std::string& what : strings_of(expectation["equal"].at("what"))) compared.insert(what);
  }
  for (const auto& [place, value] : native.values) {
    if (!compared.count(place.what) || value.none) continue;
    auto found = widened.values.find(place);
    const bool comparable = found != widened.values.end() && !found->second.none &&
                            found->second.tensor.shape == value.tensor.shape;
    if (!comparable) {
      return finding_at(VerdictKind::setup_error, "inexact", place, program,
                        describe(place) + ": the float64 run of the reference has no such value");
    }
    const Difference difference = compare(value.tensor, found->second.tensor, Tolerance{}, false);
    if (!difference) continue;
    const auto index = unflatten(difference.index, value.tensor.shape);
    Finding finding = finding_at(
        VerdictKind::setup_error, "inexact", place, program,
        fmt::format("not exact, so it does not belong into the exact lane: {}, element [{}] is {:.17g} and "
                    "{:.17g} without rounding",
                    describe(place), fmt::join(index, ", "), difference.actual, difference.expected));
    finding.divergence["index"] = index;
    finding.divergence["actual"] = difference.actual;
    finding.divergence["expected"] = difference.expected;
    return finding;
  }
  return std::nullopt;
}

}  // namespace fsdp_cts
