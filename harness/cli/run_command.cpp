#include "harness/cli/commands.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/scenario/data/fresh_data.hpp"

namespace fsdp_cts::cli {

void add_run(CLI::App& app, Shared& shared) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Run cases on an implementation and judge them");
  command->add_option(
      "FILTER", options->filters,
      "Globs over case ids, or seed:F2MP, lane:exact, world:2, label:gpu (default: everything)");
  command->add_option(
      "--scenarios", options->scenarios,
      "A scenario file, or a folder of them, in place of the suite's own; what `generate` keeps");
  add_testee_options(*command, *options);
  command->add_option("--world", options->world, "Only cases of this world size")->check(CLI::PositiveNumber);
  command->add_flag("--quick", options->quick, "The quick subset");
  command
      ->add_option(
          "--per-scenario", options->per_scenario,
          "At most so many cases of every scenario, spread over its axes; of what this machine can run")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", options->seed, "Run in an order shuffled by this number");
  CLI::Option* fresh =
      command
          ->add_option("--fresh-data", options->fresh_data,
                       "Only the exact lane, on data drawn from this number; the reference alone judges, no "
                       "recording knows them")
          ->check(CLI::Range(std::int64_t{1}, max_fresh_seed));
  CLI::Option* deviations = add_judging_options(*command, *options);
  command
      ->add_flag("--fix", options->fix,
                 "Rewrite the file of known deviations so that it fits: stale entries go, what "
                 "deviates is added")
      ->needs(deviations);
  command->add_option(
      "--level", options->level,
      "Run a level and demand all of it: full, quick, fully_shard, fsdp, composable, wrap, f2mp, "
      "f2mp.w2, … (conformance/levels)");
  command->add_option("--must-run", options->must_run, "Own list of cases that must have been judged");
  command->add_option("--record", options->record, "Fill this golden store from the testee")->excludes(fresh);
  command->add_option(
      "--golden", options->golden,
      "Compare with this golden store (default: golden/store; here: what golden/record --here made)");
  command->add_option(
      "--checkpoints", options->checkpoints,
      "Where cases save checkpoints, and look for those that they load: give it the folder of "
      "another testee's run, and this one loads what that one saved");
  command->add_flag("--keep", options->keep, "Leave a bundle of every case, not only of failures");
  command->add_option("--failures", options->failures, "Where bundles go (default: out/failures)");
  command->footer(
      "Examples:\n"
      "  fsdp-cts run                                           everything on the C++ implementation\n"
      "  fsdp-cts run 'seed:F2MP' 'lane:exact' --world 2        a part of it\n"
      "  fsdp-cts run --per-scenario 1                          a look at everything in seconds\n"
      "  fsdp-cts run --testee 'python my_testee.py' --report out/mine.ndjson --html out/mine.html\n"
      "  fsdp-cts run --level fully_shard --testee ./mine       all that an FSDP2 implementation must do\n"
      "  fsdp-cts run --testee mutant:sum_for_mean 'F2MP/*'     see how a conviction reads\n"
      "  fsdp-cts run --testee pytorch --python \"$(ci/torch-environment 2.8.0)\" --quick\n"
      "  fsdp-cts run 'F2MP/*' --testee pytorch --device sim --sim-machine h100-nvlink --sim-trace "
      "out/traces\n"
      "  fsdp-cts run --fresh-data 7 --quick                    data that no recording can answer\n"
      "  fsdp-cts run --testee pytorch 'OWN/Checkpoint/*' --checkpoints out/c    keep what PyTorch saves, …\n"
      "  fsdp-cts run 'OWN/Checkpoint/*format=safetensors,stage=2*' --checkpoints out/c    … and load it in "
      "C++\n"
      "  fsdp-cts run --testee pytorch --record golden/store    record PyTorch anew");
  command->callback([options, &shared] {
    shared.exit_code = run_suite(*options, find_suite(shared.root), shared.processes);
  });
}

}  // namespace fsdp_cts::cli
