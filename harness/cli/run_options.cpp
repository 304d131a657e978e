#include "harness/cli/run_options.hpp"

#include "harness/sim/machines.hpp"

namespace fsdp_cts::cli {

void add_testee_options(CLI::App& command, RunOptions& options) {
  TesteeChoice& testee = options.testee;
  command.add_option("--testee", testee.spec, "cpp (default), pytorch, mutant:ID, or a command line");
  command.add_option("--python", testee.python,
                     "The Python whose torch --testee pytorch means (default: FSDP_CTS_PYTHON, else what "
                     "ci/setup made)");
  command.add_option("--backend", testee.backend, "Passed on to the testee: gloo, shm, nccl, …");
  command.add_option("--device", testee.device,
                     "Passed on to the testee: cpu, cuda, sim (a simulated accelerator that finds missing "
                     "waits: cpp, pytorch), …");
  command.add_option("--sim-machine", testee.sim_machine,
                     "With --device sim: keep virtual time as on " + sim::table_of_machines());
  command.add_option(
      "--sim-trace", testee.sim_trace,
      "With --sim-machine: what ran when, for chrome://tracing and Perfetto, into this folder, "
      "<case>/rank<N>.json");
  command.add_option("--sim-memory", testee.sim_memory,
                     "With --device sim: the memory of each device, such as 64MB or 2GiB (default: 80GiB)");
  command.add_flag("--fork-server", testee.fork_server,
                   "The testee's command can be a fork server, which loads its libraries once for all ranks "
                   "(PROTOCOL.md §10); ours are without this flag");
  command.add_option("--timeout", options.timeout, "Seconds that one step may take (default: 30)")
      ->check(CLI::PositiveNumber);
  command.add_option("--env", testee.environment, "NAME=VALUE, set for the testee's ranks (repeatable)")
      ->each([](const std::string& entry) {
        if (entry.find('=') == std::string::npos || entry.starts_with('='))
          throw CLI::ValidationError("--env", "'" + entry + "' is not NAME=VALUE");
      });
}

CLI::Option* add_judging_options(CLI::App& command, RunOptions& options) {
  command
      .add_option("--jobs", options.jobs, "Groups of ranks at a time (default: as many as the cores carry)")
      ->check(CLI::NonNegativeNumber);
  CLI::Option* limit =
      command
          .add_option(
              "--max-failures", options.max_failures,
              "Stop after so many cases that are not as expected (default: 0, never); the rest is skipped")
          ->check(CLI::NonNegativeNumber);
  command
      .add_flag_callback(
          "--fail-fast", [&options] { options.max_failures = 1; }, "The same as --max-failures 1")
      ->excludes(limit);
  command.add_option("--report", options.report, "Write the report as NDJSON");
  for (const FileFormat& format : file_formats())
    command.add_option(format.option, options.formats[format.option], format.about);
  command.add_option(
      "--edition", options.edition,
      "Judge by the rules of this PyTorch version (default: the testee's, else the recordings')");
  return command
      .add_option("--known-deviations,--expectations", options.known_deviations,
                  "Known deviations of this implementation, see "
                  "docs/known-deviations.md (default for cpp, mutants and pytorch: "
                  "conformance/known_deviations)")
      ->check(CLI::ExistingFile);
}

}  // namespace fsdp_cts::cli
