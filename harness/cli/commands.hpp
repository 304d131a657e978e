// The subcommands: one file each, registered here. Each sets `exit_code` when it ran.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "harness/suite/warm_processes.hpp"

namespace fsdp_cts::cli {

struct Shared {
  std::string root;  // --root
  int exit_code = 0;
  WarmProcesses processes;  // of runs that follow one another
};

// Parses, runs and returns the exit code; mistakes go to stderr. Throws Interrupted.
int outcome(CLI::App& app, const Shared& shared, const std::function<void()>& parse);

void add_list(CLI::App& app, Shared& shared);
void add_run(CLI::App& app, Shared& shared);
void add_coverage(CLI::App& app, Shared& shared);
void add_explain(CLI::App& app, Shared& shared);
void add_replay(CLI::App& app, Shared& shared);
void add_report(CLI::App& app, Shared& shared);
void add_verify(CLI::App& app, Shared& shared);
void add_generate(CLI::App& app, Shared& shared);
void add_bench(CLI::App& app, Shared& shared);
void add_batch(CLI::App& app, Shared& shared);

}  // namespace fsdp_cts::cli
