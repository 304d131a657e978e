#include "harness/judge/fitness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/judge/exactness.hpp"
#include "harness/judge/expectations/kinds.hpp"

namespace fsdp_cts {
namespace {

bool all_zero(const HostTensor& tensor) {
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    if (tensor.element(i) != 0) return false;
  }
  return true;
}

std::optional<std::string> dead_gradients(const Evidence& native) {
  std::map<std::pair<std::string, std::string>, bool> alive;  // by model and parameter
  for (const auto& [place, value] : native.values) {
    if (place.what == "gradients" && !value.none) alive[{place.model, place.name}] |= !all_zero(value.tensor);
  }
  const auto dead = std::count_if(alive.begin(), alive.end(), [](const auto& each) { return !each.second; });
  if (2 * static_cast<std::size_t>(dead) <= alive.size()) return std::nullopt;
  return fmt::format("the gradients of {} of {} parameters are zero wherever they are observed", dead,
                     alive.size());
}

std::optional<std::string> equal_where_it_must_differ(const Case& a_case, const Evidence& native,
                                                      const ProgramMap& program) {
  const CaseRun run;
  const Truths truths;
  const ShardingPlan plan(a_case);
  const JudgeContext context{a_case, program, plan, run, native, truths};
  Outcome outcome;
  for (const Json& expectation : a_case.expect) {
    if (expectation.contains("differ")) check_expectation(expectation, context, outcome);
  }
  if (outcome.findings.empty()) return std::nullopt;
  return outcome.findings.front().summary;
}

}  // namespace

std::optional<std::string> why_unfit(const Case& a_case, const Evidence& native, const Evidence& widened) {
  if (auto inexact = first_inexact(a_case, native, widened)) return inexact->summary;
  const ProgramMap program(a_case.program);
  if (auto dead = dead_gradients(native)) return dead;
  return equal_where_it_must_differ(a_case, native, program);
}

}  // namespace fsdp_cts
