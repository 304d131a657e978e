// Whether drawn data are fit for the exact lane (judge/fitness.hpp), asked of the reference.
#pragma once

#include <string>
#include <vector>

#include "harness/runner/session.hpp"

namespace fsdp_cts {

// Exact sums do not depend on their order, so one order stands for all.
inline constexpr const char* exact_order = "rank";

struct Unfit {
  std::string why;            // empty: they are fit
  bool for_any_draw = false;  // the reference does not come to the end of the program, which no data change
};

// For each case why its data prove nothing. Costs two runs of the oracle for each, in the case's own dtypes and
// in float64. Throws Interrupted after a signal.
std::vector<Unfit> why_unfit_each(const std::vector<const Case*>& cases, const Testee& oracle,
                                  Session& session);

}  // namespace fsdp_cts
