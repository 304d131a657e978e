#include "harness/cli/commands.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/generate/generate.hpp"

namespace fsdp_cts::cli {

void add_generate(CLI::App& app, Shared& shared) {
  auto options = std::make_shared<generate::GenerateOptions>();
  RunOptions& run = options->run;
  CLI::App* command = app.add_subcommand(
      "generate", "Draw random scenarios of the exact lane, run them, and shrink those that fail");
  command
      ->add_option(
          "--seed", options->seed,
          "What is drawn depends on this number and the index alone; for --testee pytorch what it is "
          "known to do otherwise is drawn anew")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}))
      ->capture_default_str();
  command->add_option("--count", options->count, "How many")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--index", options->first, "Index of the first one")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--out", options->out, "Write every drawn scenario into this folder");
  CLI::Option* write_only =
      command->add_flag("--write-only", options->write_only, "Draw and write them, and run nothing");
  write_only->needs("--out");
  command->add_option("--shrink", options->shrink, "How many failing scenarios are made small")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--failures", options->kept, "Where failing scenarios go")->capture_default_str();
  add_testee_options(*command, run);
  add_judging_options(*command, run);
  command->footer(
      "The reference alone judges, as with --fresh-data: no recording knows these scenarios. Exit codes as "
      "of "
      "`run`.\n"
      "Examples:\n"
      "  fsdp-cts generate --seed 1 --count 500 --backend shm       a minute or two\n"
      "  fsdp-cts generate --seed 1 --index 17 --count 1            one of them again\n"
      "  fsdp-cts generate --testee pytorch --count 60              real PyTorch\n"
      "  fsdp-cts generate --testee mutant:sum_for_mean --count 20  see what shrinking leaves\n"
      "  fsdp-cts generate --count 20 --out kept --write-only       scenarios to read and to keep\n"
      "  fsdp-cts run --scenarios kept --backend shm                and to run as any other");
  command->callback(
      [options, &shared] { shared.exit_code = generate::generate(*options, find_suite(shared.root)); });
}

}  // namespace fsdp_cts::cli
