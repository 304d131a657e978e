// Proof that a case of the exact lane is exact: the reference run in its own dtypes and the one with every
// floating type widened to float64 must give the same numbers. Then nothing was rounded and no order of
// additions can matter.
#pragma once

#include <optional>

#include "harness/judge/evidence.hpp"
#include "harness/judge/finding.hpp"

namespace fsdp_cts {

// The first value that was rounded (code `inexact`, setup_error), or nothing. Only what an `equal` of the
// case compares counts.
std::optional<Finding> first_inexact(const Case& a_case, const Evidence& native, const Evidence& widened);

}  // namespace fsdp_cts
