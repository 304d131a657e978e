// `fsdp-cts generate`: draws scenarios, runs them, and makes the ones that fail as small as they can be.
#pragma once

#include "harness/suite/run_suite.hpp"

namespace fsdp_cts::generate {

struct GenerateOptions {
  RunOptions run;  // testee, reports and the like; no filters
  std::int64_t seed = 1;
  int first = 0;  // index of the first one
  int count = 100;
  std::string out;  // every drawn scenario as a file in this folder; "": none
  bool write_only = false;
  int shrink = 3;                      // how many of the failing ones are made small
  std::string kept = "out/generated";  // where failing ones go
};

// Exit code as of run_suite. Throws UsageError, Interrupted, and std::logic_error for a scenario of its own
// that is none.
int generate(const GenerateOptions& options, const Suite& suite);

}  // namespace fsdp_cts::generate
