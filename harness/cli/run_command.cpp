#include "harness/cli/commands.hpp"
#include "harness/cli/run_suite.hpp"

namespace fsdp_cts::cli {

void add_run(CLI::App& app, Shared& shared) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Run cases on an implementation and judge them");
  command->add_option(
      "FILTER", options->filters,
      "Globs over case ids, or seed:F2MP, lane:exact, world:2, label:gpu (default: everything)");
  command->add_option("--testee", options->testee.spec,
                      "cpp (default), pytorch, mutant:ID, or a command line");
  command->add_option("--backend", options->testee.backend, "Passed on to the testee: gloo, shm, nccl, …");
  command->add_option("--device", options->testee.device, "Passed on to the testee: cpu, cuda, …");
  command->add_option("--world", options->world, "Only cases of this world size")->check(CLI::PositiveNumber);
  command->add_flag("--quick", options->quick, "The quick subset");
  command
      ->add_option("--jobs", options->jobs, "Groups of ranks at a time (default: as many as the cores carry)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->seed, "Run in an order shuffled by this number");
  command->add_option("--report", options->report, "Write the report as NDJSON");
  command->add_option("--junit", options->junit, "Write JUnit XML");
  command->add_option("--html", options->html, "Write a single-file HTML report");
  CLI::Option* expectations = command
                                  ->add_option("--expectations", options->expectations,
                                               "Known deviations of this implementation (YAML)")
                                  ->check(CLI::ExistingFile);
  command->add_flag("--fix", options->fix, "Rewrite the expectation file so that it fits")
      ->needs(expectations);
  command->add_option("--must-run", options->must_run, "List of cases that must have been judged");
  command->add_option("--record", options->record, "Fill this golden store from the testee");
  command->add_option("--golden", options->golden, "Compare with this golden store (default: golden/store)");
  command->add_flag("--keep", options->keep, "Leave a bundle of every case, not only of failures");
  command->add_option("--failures", options->failures, "Where bundles go (default: out/failures)");
  command->footer(
      "Examples:\n"
      "  fsdp-cts run                                           everything on the C++ implementation\n"
      "  fsdp-cts run 'seed:F2MP' 'lane:exact' --world 2        a part of it\n"
      "  fsdp-cts run --testee 'python my_testee.py' --report out/mine.ndjson --html out/mine.html\n"
      "  fsdp-cts run --testee mutant:sum_for_mean 'F2MP/*'     see how a conviction reads\n"
      "  fsdp-cts run --testee pytorch --record golden/store    record PyTorch anew");
  command->callback([options, &shared] { shared.exit_code = run_suite(*options, find_suite(shared.root)); });
}

}  // namespace fsdp_cts::cli
