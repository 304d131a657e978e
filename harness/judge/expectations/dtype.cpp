// dtype: everything selected has this dtype on every rank, and at least so many tensors carry it.
// finite: no NaN and no infinity in what is selected.
// gradient_none: gradients are absent, or present, where they must be.
// requires_grad: every rank's share of a parameter, an empty one too, says whether it is trained.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/judge/compare.hpp"
#include "harness/judge/expectations/kinds.hpp"
#include "harness/protocol/pattern.hpp"

namespace fsdp_cts {
namespace {

bool among(const std::vector<std::string>& whats, const std::string& what) {
  return std::find(whats.begin(), whats.end(), what) != whats.end();
}

}  // namespace

void check_dtype(const Json& arguments, const Selection& selection, const JudgeContext& context,
                 Outcome& outcome) {
  const auto whats = strings_of(arguments.at("what"));
  const DType wanted = dtype_from_name(arguments.at("is").get<std::string>());
  long carrying = 0, others = 0;
  std::optional<Finding> first;
  auto look = [&](const Place& place, DType dtype) {
    if (!among(whats, place.what) || !selection.takes(place)) return;
    if (dtype == wanted) {
      ++carrying;
      return;
    }
    ++others;
    if (first && first->step <= place.step) return;
    first = failure(
        context, place,
        {"dtype",
         fmt::format("{} is {} and must be {}", describe(place), dtype_name(dtype), dtype_name(wanted)),
         dtype_name(dtype), dtype_name(wanted)});
  };
  for (const RankShard& shard : context.testee.shards) {
    if (!shard.none && !shard.pieces.empty()) look(shard.place, shard.dtype);
  }
  for (const auto& [place, value] : context.testee.values) {
    if (is_register(place.what)) look(place, value.tensor.dtype);
  }
  if (first) {
    outcome.findings.push_back(std::move(*first));
    return;
  }
  const long at_least = arguments.value("at_least", 1L);
  if (carrying >= at_least) return;
  Finding finding{VerdictKind::fail, "too_few",
                  fmt::format("{} tensors of {} are {} over all ranks, at least {} must be", carrying,
                              arguments.at("what").dump(), dtype_name(wanted), at_least)};
  finding.divergence = {{"actual", carrying}, {"expected", at_least}};
  outcome.findings.push_back(std::move(finding));
}

void check_finite(const Json& arguments, const Selection& selection, const JudgeContext& context,
                  Outcome& outcome) {
  const auto whats = strings_of(arguments.at("what"));
  long seen = 0;
  for (const auto& [place, value] : context.testee.values) {
    if (!among(whats, place.what) || !selection.takes(place) || value.none) continue;
    ++seen;
    if (!is_floating(value.tensor.dtype)) continue;
    for (std::int64_t i = 0; i < value.tensor.numel(); ++i) {
      const double element = value.tensor.element(i);
      if (std::isfinite(element)) continue;
      const auto index = unflatten(i, value.tensor.shape);
      Finding finding = failure(context, place,
                                {"not_finite", fmt::format("{}: element [{}] is {}", describe(place),
                                                           fmt::join(index, ", "), element)});
      finding.divergence["index"] = index;
      outcome.findings.push_back(std::move(finding));
      return;
    }
  }
  if (seen == 0) nothing_observed(outcome, arguments.at("what").dump());
}

void check_gradient_none(const Json& arguments, const Selection& selection, const JudgeContext& context,
                         Outcome& outcome) {
  const Pattern match(arguments.value("match", std::string(".*")));
  const bool wanted = arguments.at("is").get<bool>();
  long seen = 0;
  auto word = [](bool none) { return none ? "none" : "present"; };
  for (const auto& [place, value] : context.testee.values) {
    if (place.what != "gradients" || !selection.takes(place) || !match.found_in(place.name)) continue;
    if (value.none == wanted) {
      ++seen;
      continue;
    }
    outcome.findings.push_back(
        failure(context, place,
                {"gradient_none",
                 fmt::format("{} is {} and must be {}", describe(place), word(value.none), word(wanted)),
                 word(value.none), word(wanted)}));
    return;
  }
  const long at_least = arguments.value("at_least", 1L);
  if (seen >= at_least) return;
  if (seen == 0)
    return nothing_observed(outcome, "gradients that match " + arguments.value("match", std::string(".*")));
  Finding finding{VerdictKind::fail, "too_few",
                  fmt::format("{} gradients are {}, at least {} must be", seen, word(wanted), at_least)};
  finding.divergence = {{"actual", seen}, {"expected", at_least}};
  outcome.findings.push_back(std::move(finding));
}

void check_requires_grad(const Json& arguments, const Selection& selection, const JudgeContext& context,
                         Outcome& outcome) {
  const Pattern match(arguments.value("match", std::string(".*")));
  const bool wanted = arguments.at("is").get<bool>();
  long seen = 0;
  auto word = [](bool required) { return required ? "trained" : "frozen"; };
  for (const RankShard& shard : context.testee.shards) {
    const Place& place = shard.place;
    if (place.what != "parameters" || !selection.takes(place) || !match.found_in(place.name)) continue;
    if (shard.requires_grad == wanted) {
      ++seen;
      continue;
    }
    const Json actual = shard.requires_grad ? Json(*shard.requires_grad) : Json(nullptr);
    outcome.findings.push_back(failure(
        context, place,
        {"requires_grad",
         fmt::format("{} has requires_grad {} and must be {}", describe(place), actual.dump(), word(wanted)),
         actual, wanted}));
    return;
  }
  const long at_least = arguments.value("at_least", 1L);
  if (seen >= at_least) return;
  if (seen == 0)
    return nothing_observed(outcome, "parameters that match " + arguments.value("match", std::string(".*")));
  Finding finding{VerdictKind::fail, "too_few",
                  fmt::format("{} shares are {}, at least {} must be", seen, word(wanted), at_least)};
  finding.divergence = {{"actual", seen}, {"expected", at_least}};
  outcome.findings.push_back(std::move(finding));
}

}  // namespace fsdp_cts
