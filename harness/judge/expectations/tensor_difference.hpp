// How a comparison of two tensors that failed is told: one wording for all expectations that compare numbers.
#pragma once

#include "harness/judge/compare.hpp"
#include "harness/judge/scene.hpp"

namespace fsdp_cts {

// A number as JSON; non-finite ones, which JSON lacks, as "nan", "inf", "-inf".
Json number(double value);

// `side` names what was compared with: "reference", "golden", "model 'plain'".
Finding tensor_failure(const Scene& scene, const Place& place, const Value& actual, const Value& expected,
                       const Difference& difference, const std::string& side);

// Adds what was compared to the counts.
void count_comparison(Outcome& outcome, const Difference& difference);

// An absent gradient against a present one.
bool presence_differs(const Value& actual, const Value& expected);

}  // namespace fsdp_cts
