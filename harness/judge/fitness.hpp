// Whether drawn data are fit for the exact lane. Data in the scenarios were searched until they were; data
// that a run draws by itself are asked the same questions.
#pragma once

#include <optional>
#include <string>

#include "harness/judge/evidence.hpp"

namespace fsdp_cts {

// Why these data prove nothing, or nothing if they are fit. Given the reference's run in the case's own
// dtypes and the one in float64. Fit is what never rounds (exactness.hpp), gives at least half of the
// parameters whose gradients are observed one other than zero, lets no part of a norm of magnitudes round, and
// satisfies every `differ` of the case: what a right implementation cannot fulfil is no question to anybody.
std::optional<std::string> why_unfit(const Case& a_case, const Evidence& native, const Evidence& widened);

}  // namespace fsdp_cts
