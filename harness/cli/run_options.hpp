// Options of every command that runs cases on an implementation, into RunOptions.
#pragma once

#include <CLI/CLI.hpp>

#include "harness/suite/run_suite.hpp"

namespace fsdp_cts::cli {

// --testee, --python, --backend, --device, --env, --timeout: what runs, and how.
void add_testee_options(CLI::App& command, RunOptions& options);
// --jobs, --max-failures, --fail-fast, --report and the formats made from it, --known-deviations, --edition: how
// it is judged and told. Returns --known-deviations.
CLI::Option* add_judging_options(CLI::App& command, RunOptions& options);

}  // namespace fsdp_cts::cli
