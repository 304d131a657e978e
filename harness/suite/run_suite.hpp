// What `run` and `replay` have in common: from options to verdicts, reports and an exit code.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/file_formats.hpp"
#include "harness/suite/testees.hpp"
#include "harness/suite/warm_processes.hpp"

namespace fsdp_cts {

struct RunOptions {
  std::vector<std::string> filters;
  std::string scenarios;  // a file or a folder in place of the suite's own
  TesteeChoice testee;
  int world = 0;  // 0: all
  bool quick = false;
  int per_scenario = 0;                    // at most so many cases of every scenario; 0: all
  int jobs = 0;                            // 0: as many groups as the cores carry
  std::optional<unsigned> seed;            // shuffles the order of cases
  std::optional<std::int64_t> fresh_data;  // exact lane only, on data drawn from this seed
  std::string report;
  FormatFiles formats;
  std::string known_deviations;  // file; "": those of the suite for its own testees, if there are any
  bool fix = false;
  std::string level;     // a selection with a name, and what must have been judged of it
  std::string must_run;  // a file of the same form, of one's own
  std::string record;
  std::string golden;             // other store than golden/store; "here": this machine's own
  std::string checkpoints;        // folder that cases save into and load from; "": one that goes with the run
  std::string edition;            // "2.15"; "": of the testee's PyTorch, else of the recordings
  bool keep = false;              // bundles of passed cases too
  int max_failures = 0;           // stop after so many cases that need attention; 0: never
  std::optional<double> timeout;  // seconds for one step, instead of the usual
  std::string failures = "out/failures";
};

// What another run of one of the cases needs too, by option: {"--testee": "pytorch", "--env": ["A=1"]};
// defaults are left out. `again:` and bundles are made from it, and replay takes it back.
Json kept_options(const RunOptions& options);
// As they stand in a command line, each with a space before it.
std::string options_text(const Json& kept);
// Sets what is in `kept` and not set in `options` yet. Throws UsageError for an option that is not kept.
void take_options(const Json& kept, RunOptions& options);

// Throws UsageError, ScenarioError, Interrupted. What can serve another run stays in `processes`.
int run_suite(const RunOptions& options, const Suite& suite, WarmProcesses& processes);

// Cases that stand in no file: those of `generate`.
struct GivenCases {
  std::vector<Case> cases;
  std::function<std::string(const Case&)> repeat;  // the command that runs one of them again, without options
};
struct RunResult {
  int exit_code = 0;
  std::vector<Json> records;
};
// Like run_suite; leaves no bundles, which could not be replayed.
RunResult run_given(const RunOptions& options, const Suite& suite, GivenCases given);

}  // namespace fsdp_cts
