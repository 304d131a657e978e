// Which PyTorch's rules hold. What PyTorch changed on purpose is right in one edition and wrong in another,
// so clauses and expectations may carry `since` and `until` (LANGUAGE.md §7).
#pragma once

#include <compare>
#include <optional>
#include <string>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// "2.15": major and minor number of a PyTorch version. Patch releases change no rule.
struct Edition {
  int major = 0, minor = 0;
  std::strong_ordering operator<=>(const Edition&) const = default;
  std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
};

// The edition that the committed recordings and most rules were taken from.
constexpr Edition default_edition{2, 11};

// Of "2.15" or "2.15.0+cu130"; nothing for anything else.
std::optional<Edition> edition_of(const std::string& version);

// Whether `text`, comparisons such as ">=2.13 <2.15.2", holds of the version. A comparison takes as many
// numbers into account as it names. Throws std::invalid_argument for anything else.
bool version_within(const std::string& version, const std::string& text);

// Whether a map with `since` and `until` (exclusive) is for this edition.
bool holds_in(const Json& expectation, Edition edition);

// The case as it stands in this edition: expectations for others are gone.
Case in_edition(const Case& a_case, Edition edition);

// Whether PyTorch changed between the two editions what is right for this case, which is given with all its
// expectations. A recording from the other side of such a change is no truth.
bool changed_between(const Case& a_case, Edition one, Edition other);

}  // namespace fsdp_cts
