// How a failed comparison of two tensors is reported: one wording for all expectations that compare numbers.
#pragma once

#include "harness/judge/compare.hpp"
#include "harness/judge/judge_context.hpp"

namespace fsdp_cts {

// A number as JSON; non-finite ones, which JSON lacks, as "nan", "inf", "-inf".
Json number(double value);

// `side` names what was compared with: "reference", "golden", "model 'plain'".
Finding tensor_failure(const JudgeContext& context, const Place& place, const Value& actual,
                       const Value& expected, const Difference& difference, const std::string& side);

// Adds what was compared to the counts.
void count_comparison(Outcome& outcome, const Difference& difference);

// An absent gradient against a present one.
bool presence_differs(const Value& actual, const Value& expected);

}  // namespace fsdp_cts
