// Data that are drawn for one run: `run --fresh-data SEED`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/runner/session.hpp"

namespace fsdp_cts {

// How many draws a case gets before it is left out.
constexpr int max_draws = 128;

struct FreshDraws {
  std::map<std::string, int> draws;          // case id → the draw that was fit, from 1
  std::map<std::string, std::string> unfit;  // case id → why none was
};

// Draws data for each case, of which all are in the exact lane, until they are fit (judge/fitness.hpp), and
// puts them into it. What a case gets depends on the case and the seed alone, never on what else was
// selected. Costs two runs of the oracle for each draw, shared by cases that ask the same. Throws Interrupted
// after a signal.
FreshDraws draw_fresh_data(const std::vector<Case*>& cases, std::int64_t seed, const Testee& oracle,
                           const SessionOptions& session);

// Moves to `unfit` who loads a checkpoint that was made with other data: of another draw, or of none.
// draw_fresh_data does so itself.
void leave_out_other_data(const std::vector<Case*>& cases, FreshDraws& draws);

}  // namespace fsdp_cts
