// The subcommands: one file each, registered here. Each sets `exit_code` when it ran.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace fsdp_cts::cli {

struct Shared {
  std::string root;  // --root
  int exit_code = 0;
};

void add_list(CLI::App& app, Shared& shared);
void add_run(CLI::App& app, Shared& shared);
void add_coverage(CLI::App& app, Shared& shared);
void add_explain(CLI::App& app, Shared& shared);
void add_replay(CLI::App& app, Shared& shared);
void add_report(CLI::App& app, Shared& shared);
void add_verify(CLI::App& app, Shared& shared);
void add_generate(CLI::App& app, Shared& shared);
void add_bench(CLI::App& app, Shared& shared);

}  // namespace fsdp_cts::cli
