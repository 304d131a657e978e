#include "harness/judge/fitness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
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

// The exponent of the lowest bit that is set.
int lowest_bit(double value) {
  int exponent = 0;
  const auto digits = static_cast<std::int64_t>(std::ldexp(std::frexp(std::abs(value), &exponent), 53));
  return exponent - 53 + std::countr_zero(static_cast<std::uint64_t>(digits));
}

// A sum of magnitudes may be representable where a part of it, one rank's, is not.
std::optional<std::string> norm_that_may_round(const Case& a_case, const Evidence& native) {
  for (const Json& step : a_case.program) {
    if (step.at("verb") != "clip_grad_norm" || step.value("norm_type", Json(2.0)) != 1) continue;
    const std::string norm = "register:" + step.at("into").get<std::string>();
    for (const auto& [at, total] : native.values) {
      if (at.what != norm || total.none) continue;
      const double largest = std::abs(total.tensor.element(0));
      for (const auto& [place, value] : native.values) {
        if (place.what != "gradients" || place.step != at.step || value.none) continue;
        for (std::int64_t i = 0; i < value.tensor.numel(); ++i) {
          const double element = value.tensor.element(i);
          if (element != 0 && std::ldexp(largest, -lowest_bit(element)) > (1 << 24))
            return fmt::format(
                "{} is {:.17g} and has an addend with bits below 2^-24 of it, so a part of the sum may round",
                norm, largest);
        }
      }
    }
  }
  return std::nullopt;
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
  if (auto rounds = norm_that_may_round(a_case, native)) return rounds;
  return equal_where_it_must_differ(a_case, native, program);
}

}  // namespace fsdp_cts
