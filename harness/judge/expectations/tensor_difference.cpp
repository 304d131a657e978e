#include "harness/judge/expectations/tensor_difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace fsdp_cts {

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

namespace {

// "allowed: upstream 1.1e-05, noise 16 x 3e-08": how far apart the element might have been.
std::string allowed(const Difference& difference) {
  const Tolerance& tolerance = difference.tolerance;
  if (tolerance.exact) return "";
  std::string text = fmt::format("; allowed: {} {:.2g}", tolerance.noise > 0 ? "upstream" : "at most",
                                 tolerance.atol + tolerance.rtol * std::abs(difference.expected));
  if (tolerance.noise > 0) text += fmt::format(", noise {:.0f} x {:.2g}", noise_factor, tolerance.noise);
  return text;
}

}  // namespace

bool presence_differs(const Value& actual, const Value& expected) {
  return actual.none != expected.none;
}

namespace {

// What every element that differs is times its truth, if there is one such factor for all of them: a sum for
// a mean, a division too many. One element alone proves no rule.
std::optional<double> common_factor(const HostTensor& actual, const HostTensor& expected) {
  std::optional<double> factor;
  long differing = 0;
  for (std::int64_t i = 0; i < actual.numel(); ++i) {
    const double a = actual.element(i), e = expected.element(i);
    if (a == e) continue;
    const double ratio = a / e;
    if (!std::isfinite(ratio) || ratio == 0) return std::nullopt;
    if (!factor) factor = ratio;
    if (std::abs(ratio - *factor) > 1e-3 * std::abs(*factor)) return std::nullopt;
    ++differing;
  }
  // Rounding alone is a common factor of about 1.
  if (differing < 2 || std::abs(*factor - 1) < 0.01) return std::nullopt;
  return factor;
}

std::string factor_text(double factor, int world) {
  const auto is = [&](double other) { return std::abs(factor - other) < 1e-3 * other; };
  const std::string guess = world < 2   ? ""
                            : is(world) ? fmt::format(" (world size {}: a sum where a mean is due?)", world)
                            : is(1. / world) ? fmt::format(" (world size {}: divided once too often?)", world)
                                             : "";
  return fmt::format("; every differing element is {:.4g} x the expected value{}", factor, guess);
}

// Which elements differ and which rank holds which, flat and as far as a reader can look at it: what the HTML
// report draws. Ranks that hold the same element in several replicas all stand there.
nlohmann::ordered_json tensor_map(const HostTensor& tensor, const Difference& difference,
                                  const std::vector<HeldPiece>& held) {
  constexpr std::size_t max_pieces = 512;
  long shown = 0;
  for (const auto& [first, count] : difference.stretches) shown += count;
  auto pieces = nlohmann::ordered_json::array();
  for (const auto& [rank, piece] : held) {
    if (pieces.size() < max_pieces) pieces.push_back({rank, piece.offset, piece.length});
  }
  return {{"shape", tensor.shape},
          {"differing", difference.stretches},
          {"not_shown", difference.differing - shown},
          {"held", std::move(pieces)}};
}

}  // namespace

Finding tensor_failure(const JudgeContext& context, const Place& place, const Value& actual,
                       const Value& expected, const Difference& difference, const std::string& side) {
  const std::string subject = describe(place);
  if (presence_differs(actual, expected)) {
    auto word = [](const Value& value) { return value.none ? "none" : "present"; };
    return failure(
        context, place,
        {"none", fmt::format("{}: {} where the {} has {}", subject, word(actual), side, word(expected)),
         word(actual), word(expected)});
  }
  if (difference.kind == Difference::Kind::dtype) {
    const auto a = dtype_name(actual.tensor.dtype), e = dtype_name(expected.tensor.dtype);
    return failure(context, place,
                   {"dtype", fmt::format("{}: {} where the {} has {}", subject, a, side, e), a, e});
  }
  if (difference.kind == Difference::Kind::shape) {
    return failure(
        context, place,
        {"shape",
         fmt::format("{}: shape [{}] where the {} has [{}]", subject, fmt::join(actual.tensor.shape, ", "),
                     side, fmt::join(expected.tensor.shape, ", ")),
         actual.tensor.shape, expected.tensor.shape});
  }
  const auto index = unflatten(difference.index, actual.tensor.shape);
  const auto held = held_pieces(context.testee, place);
  const auto rank = place.rank ? place.rank : holder(held, difference.index);
  Finding finding = failure(
      context, place,
      {"value",
       fmt::format(
           "{}{}: element [{}] is {:.9g} where the {} has {:.9g} ({:.4g} ULP; {} of {} elements differ{})",
           subject, rank && !place.rank ? fmt::format(", held by rank {}", *rank) : "",
           fmt::join(index, ", "), difference.actual, side, difference.expected, difference.ulp,
           difference.differing, difference.elements, allowed(difference)),
       number(difference.actual), number(difference.expected)});
  if (rank) finding.divergence["rank"] = *rank;
  finding.divergence["index"] = index;
  finding.divergence["ulp"] = number(difference.ulp);
  if (difference.elements > 1) finding.divergence["tensor"] = tensor_map(actual.tensor, difference, held);
  if (const auto factor = common_factor(actual.tensor, expected.tensor)) {
    finding.divergence["factor"] = *factor;
    finding.summary += factor_text(*factor, context.a_case.world);
  }
  return finding;
}

void count_comparison(Outcome& outcome, const Difference& difference) {
  outcome.counts.elements += difference.elements;
  outcome.counts.exact_elements += difference.exact_elements;
  outcome.counts.tensors += 1;
  if (!difference) outcome.max_ulp = std::max(outcome.max_ulp, difference.max_ulp);
}

}  // namespace fsdp_cts
