#include "harness/judge/expectations/tensor_difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fsdp_cts {

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

bool presence_differs(const Value& actual, const Value& expected) {
  return actual.none != expected.none;
}

Finding tensor_failure(const Scene& scene, const Place& place, const Value& actual, const Value& expected,
                       const Difference& difference, const std::string& side) {
  const std::string subject = describe(place);
  if (presence_differs(actual, expected)) {
    auto word = [](const Value& value) { return value.none ? "none" : "present"; };
    return failure(
        scene, place,
        {"none", fmt::format("{}: {} where the {} has {}", subject, word(actual), side, word(expected)),
         word(actual), word(expected)});
  }
  if (difference.kind == Difference::Kind::dtype) {
    const auto a = dtype_name(actual.tensor.dtype), e = dtype_name(expected.tensor.dtype);
    return failure(scene, place,
                   {"dtype", fmt::format("{}: {} where the {} has {}", subject, a, side, e), a, e});
  }
  if (difference.kind == Difference::Kind::shape) {
    return failure(
        scene, place,
        {"shape",
         fmt::format("{}: shape [{}] where the {} has [{}]", subject, fmt::join(actual.tensor.shape, ", "),
                     side, fmt::join(expected.tensor.shape, ", ")),
         actual.tensor.shape, expected.tensor.shape});
  }
  const auto index = unflatten(difference.index, actual.tensor.shape);
  const auto rank = holder(scene.testee, place, difference.index);
  Finding finding = failure(
      scene, place,
      {"value",
       fmt::format(
           "{}{}: element [{}] is {:.9g} where the {} has {:.9g} ({:.4g} ULP; {} of {} elements differ)",
           subject, rank && !place.rank ? fmt::format(", held by rank {}", *rank) : "",
           fmt::join(index, ", "), difference.actual, side, difference.expected, difference.ulp,
           difference.differing, difference.elements),
       number(difference.actual), number(difference.expected)});
  if (rank) finding.divergence["rank"] = *rank;
  finding.divergence["index"] = index;
  finding.divergence["ulp"] = number(difference.ulp);
  return finding;
}

void count_comparison(Outcome& outcome, const Difference& difference) {
  outcome.counts.elements += difference.elements;
  outcome.counts.exact_elements += difference.exact_elements;
  outcome.counts.tensors += 1;
  if (!difference) outcome.max_ulp = std::max(outcome.max_ulp, difference.max_ulp);
}

}  // namespace fsdp_cts
