// How ranks ended a case, before a single number is looked at.
#pragma once

#include "harness/judge/finding.hpp"
#include "harness/runner/run.hpp"
#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// True when every rank said `done`, so that answers can be judged. Otherwise findings say what became of the
// worst rank: crash, hang, unsupported, fail (`exception`; a protocol error under its own code), setup_error
// (never started).
bool check_rank_ends(const Case& a_case, const CaseRun& run, Outcome& outcome);

}  // namespace fsdp_cts
