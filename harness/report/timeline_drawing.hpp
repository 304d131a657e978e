// What ran when, as a drawing: a lane per stream, and where two accesses were not ordered.
#pragma once

#include <string>

#include "harness/report/report.hpp"

namespace fsdp_cts {

// HTML for the `timeline` of a record (suite/timeline.hpp): one drawing per rank, time from left to right, findings as
// red marks. Without one, for a divergence with the two sides of a finding (`earlier`, `later`, `missing`): a
// drawing without times, the two accesses on their lanes and the wait that is missing between them. Empty for
// anything else: reports come from anywhere.
std::string timeline_of(const Json& record);

}  // namespace fsdp_cts
