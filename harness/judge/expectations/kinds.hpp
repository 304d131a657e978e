// The kinds of expectations (LANGUAGE.md §7): one function each, in the file of its name.
#pragma once

#include <map>
#include <string>

#include "harness/judge/judge_context.hpp"

namespace fsdp_cts {

// `arguments` is what stands behind the kind's name; findings and counts go to `outcome`. A kind that can be
// vacuous reports `nothing_observed` when there was nothing to check.
using ExpectationCheck = void (*)(const Json& arguments, const Selection& selection,
                                  const JudgeContext& context, Outcome& outcome);

void check_equal(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_match(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_differ(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_dtype(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_recorded(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_seen_parameters(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_error(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_no_error(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_warning(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_no_warning(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_collectives(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_collective_bytes(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_order(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_transport_bytes(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_layout(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_unit_tree(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_counters(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_training_state(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_devices(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_elapsed(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_memory(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_virtual_time(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_registered_parameters(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_requires_grad(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_gradient_none(const Json&, const Selection&, const JudgeContext&, Outcome&);
void check_finite(const Json&, const Selection&, const JudgeContext&, Outcome&);

const std::map<std::string, ExpectationCheck>& expectation_kinds();

// Evaluates one element of a case's `expect`. An unknown kind is a setup_error: the loader should have
// refused it.
void check_expectation(const Json& expectation, const JudgeContext& context, Outcome& outcome);

}  // namespace fsdp_cts
