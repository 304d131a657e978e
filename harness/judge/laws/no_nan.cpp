#include <fmt/format.h>

#include "harness/judge/compare.hpp"
#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {
namespace {

void look(const JudgeContext& context, const Evidence& evidence, VerdictKind kind, const std::string& code,
          const std::string& whose, Outcome& outcome) {
  for (const auto& [place, value] : evidence.values) {
    if (value.none) continue;
    const std::int64_t at = first_nan(value.tensor);
    if (at < 0) continue;
    const auto index = unflatten(at, value.tensor.shape);
    Finding finding = failure(
        context, place,
        {code, fmt::format("{}{}: element [{}] is NaN", whose, describe(place), fmt::join(index, ", ")),
         "nan"});
    finding.kind = kind;
    if (auto rank = holder(evidence, place, at)) finding.divergence["rank"] = *rank;
    finding.divergence["index"] = index;
    outcome.findings.push_back(std::move(finding));
    return;
  }
}

}  // namespace

void no_nan(const JudgeContext& context, Outcome& outcome) {
  for (const char* name : {"reference", "golden"}) {
    if (const Evidence* truth = context.truths.named(name).evidence) {
      look(context, *truth, VerdictKind::setup_error, "truth_nan",
           std::string("the suite's own ") + name + ": ", outcome);
    }
  }
  look(context, context.testee, VerdictKind::fail, "nan", "", outcome);
}

}  // namespace fsdp_cts
