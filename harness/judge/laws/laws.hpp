// Laws every case is subject to without a line in its scenario (end of LANGUAGE.md §7). One file each.
#pragma once

#include <vector>

#include "harness/judge/judge_context.hpp"

namespace fsdp_cts {

struct Law {
  const char* name;  // stands as `expectation` in divergences
  void (*check)(const JudgeContext& context, Outcome& outcome);
};

// Every rank answered everything its program asks to observe: `rank_missing` (no answer to a step),
// `empty_answer` (an answer without entries, or a list of parameters without items), `entry_missing` (one
// `what` left out).
void all_ranks_answer(const JudgeContext&, Outcome&);
// Every parameter of the model is among those observed (`parameter_missing`).
void parameters_are_complete(const JudgeContext&, Outcome&);
// Where the plan shards over more than one rank, some rank holds less than everything: `not_sharded`.
void something_is_sharded(const JudgeContext&, Outcome&);
// The members of a group issue the same collectives in the same order with the same dtype, operator and sizes
// (`collective_order`), a rank belongs to the groups it uses (`collective_group`), sizes fit the group
// (`collective_size`).
void collectives_agree(const JudgeContext&, Outcome&);
// The ranks' sockets carried at least what the collectives in their traces need (`collectives_unseen`). Where
// nobody counted (CaseRun::sent), the traces stay the testee's word, unless a rank took the count away
// (`transport_lost`).
void transport_carries_the_trace(const JudgeContext&, Outcome&);
// No device has found two accesses of its memory that nothing orders (`stream_race`, `use_after_free`,
// `host_read_unfinished`), and a testee that says it runs on the simulated device has given it work
// (`device_unused`).
void device_work_is_ordered(const JudgeContext&, Outcome&);
// No rank has more memory of its device after the case than before (`memory_kept`).
void device_memory_is_given_back(const JudgeContext&, Outcome&);
// In forward and backward nothing makes the host wait for the device that the plan does not ask for (`host_waited`).
void host_does_not_wait(const JudgeContext&, Outcome&);
// In forward and backward a device holds no more beside what the model itself takes, by the reference's count, than the
// units that may be whole at once and gradients on their way (`memory_exceeded`).
void memory_is_within_bounds(const JudgeContext&, Outcome&);
// What a rank holds of parameters, gradients and states lies in memory as it is read (`not_contiguous`).
void tensors_are_contiguous(const JudgeContext&, Outcome&);
// No NaN in a truth (setup_error `truth_nan`), none in what the testee answers (`nan`).
void no_nan(const JudgeContext&, Outcome&);
// An attempt that no expectation names must not fail: `unexpected_error`.
void attempts_are_expected(const JudgeContext&, Outcome&);

const std::vector<Law>& laws();  // the first is that all ranks answer

}  // namespace fsdp_cts
