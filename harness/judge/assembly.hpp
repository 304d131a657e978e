// From what ranks sent to evidence: shards are put together, nothing is believed. Every lie or gap is a
// finding.
#pragma once

#include "harness/judge/evidence.hpp"
#include "harness/judge/finding.hpp"
#include "harness/judge/program_map.hpp"
#include "harness/judge/sharding_plan.hpp"
#include "harness/runner/run.hpp"

namespace fsdp_cts {

// A testee's run. Findings (all VerdictKind::fail) carry one of these codes:
//   malformed_entry    an entry without the keys PROTOCOL.md §5 asks for, or of the wrong type
//   unknown_step       an observation of a step that does not exist, observes nothing, or is not this rank's
//   duplicate_entry    the same thing twice in one step from one rank
//   tensor_missing     an entry names a tensor that is not in its file
//   unknown_name       a parameter or buffer the model does not have
//   shape, dtype       not the model's global shape, or a piece shorter or longer than claimed; not the dtype
//   the entry
//                      claims, or a parameter at rest in another dtype than the model's (clauses
//                      FS-MP-4, FP-MP-1)
//   shard_missing      elements that no rank holds
//   shard_overlap      elements that two ranks of a shard group hold
//   shard_out_of_range a piece outside the tensor
//   replica_differs    replicas of a hybrid mesh with different bits
//   rank_disagreement  ranks disagree on dtype, shape or on being sharded
Evidence assemble_testee(const Case& a_case, const ProgramMap& program, const ShardingPlan& plan,
                         const CaseRun& run, std::vector<Finding>& findings);

// The oracle's run: entries carry their own rank and full tensors. Findings are VerdictKind::setup_error.
Evidence assemble_oracle(const ProgramMap& program, const CaseRun& run, std::vector<Finding>& findings);

}  // namespace fsdp_cts
