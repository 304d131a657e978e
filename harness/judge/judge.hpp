// From what came back to a verdict. Trusts nobody: neither a rank's word about its shards nor a truth without
// looking.
#pragma once

#include <string>

#include "harness/judge/evidence.hpp"
#include "harness/judge/truths.hpp"
#include "harness/judge/verdict.hpp"
#include "harness/runner/run.hpp"

namespace fsdp_cts {

// The verdict is the worst over ranks, expectations, laws and counts. A pass that compared less than the
// case's minimum is `unresolved`. Throws nothing for anything a testee sent; a fault in the judge itself
// becomes setup_error `judge`.
Verdict judge(const Case& a_case, const CaseRun& run, const Truths& truths);

// The testee's evidence alone, for recording. Null with a verdict that says why when the run did not end well
// or shards do not fit.
std::optional<Evidence> evidence_for_recording(const Case& a_case, const CaseRun& run, Verdict& verdict);

// The oracle's answer as a truth; its crash, silence or `unsupported` is the truth's problem.
OwnedTruth truth_from_oracle(const Case& a_case, const CaseRun& run, const std::string& reduction_order);

Verdict skipped(const Case& a_case, const std::string& reason);
Verdict setup_error(const Case& a_case, const std::string& code, const std::string& reason);

}  // namespace fsdp_cts
