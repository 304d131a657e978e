// New data for a case of the exact lane: answers that nobody can have recorded and nobody tuned to.
#pragma once

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// What --fresh-data takes: 1 to this, so that every data seed made of it is a whole number far below 2^63.
constexpr std::int64_t max_fresh_seed = 1'000'000'000;

// The case with every formula drawn anew: `data.seed` is seed * 1,000,000 + draw (data-formulas.md), draw
// from 1. Levels, units, shapes and constants stay. No recording knows these data, so every `equal` is judged
// by the reference alone.
Case with_fresh_data(const Case& a_case, std::int64_t seed, int draw);

}  // namespace fsdp_cts
