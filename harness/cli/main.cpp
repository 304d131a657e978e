// fsdp-cts: the command line. Exit codes: 0 all as expected, 1 not, 2 invalid use, no case, or an incomplete
// report, 77 every case was skipped because this machine cannot show it.
#include <fmt/format.h>

#include <cstdio>

#include "harness/cli/commands.hpp"
#include "harness/runner/interruption.hpp"
#include "harness/suite/suite.hpp"

using namespace fsdp_cts;

int main(int argc, char** argv) {
  CLI::App app{"fsdp-cts: conformance test suite for Fully Sharded Data Parallel training"};
  cli::Shared shared;
  app.add_option("--root", shared.root,
                 "Folder of fsdp-cts with conformance/ and golden/ (default: FSDP_CTS_ROOT, else where it "
                 "was built from)");
  app.set_version_flag("--version", "fsdp-cts " + suite_version());
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(
      "Exit codes: 0 all as expected, 1 not, 2 invalid use or no case or incomplete report, 77 everything "
      "skipped.\n"
      "Examples:\n"
      "  fsdp-cts run --quick                             one case per scenario on the C++ implementation\n"
      "  fsdp-cts run 'seed:F2MP' --testee pytorch        real PyTorch\n"
      "  fsdp-cts explain 'F2MP/*/test_compute_dtype*'    what a case does, in words");
  for (auto* add : {cli::add_list, cli::add_run, cli::add_coverage, cli::add_explain, cli::add_replay,
                    cli::add_report, cli::add_verify, cli::add_generate, cli::add_bench, cli::add_batch}) {
    add(app, shared);
  }
  try {
    return cli::outcome(app, shared, [&] {
      app.parse(argc, argv);
      shared.processes.close();
    });
  } catch (const Interrupted& error) {
    fmt::print(stderr, "fsdp-cts: {}; the report is incomplete\n", error.what());
    return 128 + error.signal;
  }
}
