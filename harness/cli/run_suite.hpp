// What `run` and `replay` have in common: from options to verdicts, reports and an exit code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/cli/testees.hpp"

namespace fsdp_cts::cli {

struct RunOptions {
  std::vector<std::string> filters;
  TesteeChoice testee;
  int world = 0;  // 0: all
  bool quick = false;
  int jobs = 0;                  // 0: as many groups as the cores carry
  std::optional<unsigned> seed;  // shuffles the order of cases
  std::string report, junit, html;
  std::string expectations;
  bool fix = false;
  std::string must_run;
  std::string record;
  std::string golden;  // other store than golden/store
  bool keep = false;   // bundles of passed cases too
  std::string failures = "out/failures";
};

// Throws UsageError, ScenarioError, Interrupted.
int run_suite(const RunOptions& options, const Suite& suite);

}  // namespace fsdp_cts::cli
