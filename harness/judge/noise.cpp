#include "harness/judge/noise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "harness/judge/compare.hpp"
#include "harness/judge/entries.hpp"
#include "harness/judge/program_map.hpp"

namespace fsdp_cts {
namespace {

// An element that is not finite on either side says nothing about roundings.
double largest_difference(const HostTensor& a, const HostTensor& b) {
  double largest = 0;
  const std::int64_t count = a.numel();
  for (std::int64_t i = 0; i < count; ++i) {
    const double difference = std::abs(a.element(i) - b.element(i));
    if (std::isfinite(difference)) largest = std::max(largest, difference);
  }
  return largest;
}

double largest(const HostTensor& tensor) {
  double value = 0;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const double element = std::abs(tensor.element(i));
    if (std::isfinite(element)) value = std::max(value, element);
  }
  return value;
}

// Names as `observe` has them that an `equal` compares within a tolerance.
std::set<std::string> compared_within_tolerance(const Case& a_case) {
  std::set<std::string> whats;
  for (const Json& expectation : a_case.expect) {
    auto equal = expectation.find("equal");
    if (equal == expectation.end() || equal->value("tolerance", Json()) == "exact") continue;
    for (std::string& what : strings_of(equal->at("what"))) whats.insert(std::move(what));
  }
  return whats;
}

// "bfloat16" has it in its name too.
bool computes_in_16_bits(const Case& a_case) {
  return Json{a_case.models, a_case.plans, a_case.program, a_case.data}.dump().find("float16") !=
         std::string::npos;
}

}  // namespace

Noise::Noise(const Evidence& native, const std::vector<const Evidence*>& others) {
  std::map<std::tuple<int, std::string, std::string>, double> observed;
  const auto observation = [](const Place& place) { return std::tuple(place.step, place.what, place.model); };
  for (const auto& [place, value] : native.values) {
    if (value.none || !is_floating(value.tensor.dtype)) continue;
    double& together = observed[observation(place)];
    together = std::max(together, largest(value.tensor));
    Scale& scale = scales_[place];
    for (const Evidence* other : others) {
      for (const Place* there : counterparts(other->values, place)) {
        const Value& theirs = other->values.at(*there);
        if (!theirs.none && theirs.tensor.shape == value.tensor.shape)
          scale.noise = std::max(scale.noise, largest_difference(value.tensor, theirs.tensor));
      }
    }
  }
  for (auto& [place, scale] : scales_) scale.observed = observed[observation(place)];
}

double Noise::at(const Place& place) const {
  const auto counted = [](const Scale& scale) { return std::min(scale.noise, noisy_share * scale.observed); };
  if (auto same = scales_.find(place); same != scales_.end()) return counted(same->second);
  Place for_all = place;
  for_all.rank.reset();
  if (place.rank) {
    auto shared = scales_.find(for_all);
    return shared == scales_.end() ? 0 : counted(shared->second);
  }
  double result = 0;
  for (auto it = scales_.upper_bound(for_all); it != scales_.end(); ++it) {
    Place other = it->first;
    other.rank.reset();
    if (other != for_all) break;
    result = std::max(result, counted(it->second));
  }
  return result;
}

std::optional<Finding> first_noisy(const Case& a_case, const Noise& noise) {
  if (computes_in_16_bits(a_case)) return std::nullopt;
  const ProgramMap program(a_case.program);
  const std::set<std::string> compared = compared_within_tolerance(a_case);
  for (const auto& [place, scale] : noise.scales()) {
    if (!compared.count(place.what) || scale.noise <= noisy_share * scale.observed) continue;
    Finding finding = finding_at(
        VerdictKind::setup_error, "noisy", place, program,
        fmt::format(
            "rounding alone moves {} by {:.2g}, and the largest element observed with it is {:.2g}: no "
            "distance tells such noise from a fault; take other data or fewer steps, or leave it out of "
            "the comparison",
            describe(place), scale.noise, scale.observed));
    finding.divergence["noise"] = scale.noise;
    finding.divergence["observed"] = scale.observed;
    return finding;
  }
  return std::nullopt;
}

}  // namespace fsdp_cts
