#include <fmt/format.h>

#include <iostream>

#include "harness/cli/commands.hpp"
#include "harness/scenario/data/fresh_data.hpp"
#include "harness/suite/bundle.hpp"
#include "harness/suite/run_suite.hpp"

namespace fsdp_cts::cli {

void add_replay(CLI::App& app, Shared& shared) {
  struct Options {
    std::string what;
    RunOptions run;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("replay", "Run one case again, from the bundle of a failure or by its id");
  command->add_option("BUNDLE|CASE", options->what, "A folder under out/failures, or a case id")->required();
  CLI::Option* testee =
      command->add_option("--testee", options->run.testee.spec, "Another implementation than the bundle's");
  command->add_option("--python", options->run.testee.python,
                      "The Python whose torch --testee pytorch means");
  command->add_option("--golden", options->run.golden,
                      "Compare with this golden store (default: golden/store)");
  command->add_option("--edition", options->run.edition, "Judge by the rules of this PyTorch version");
  command->add_option("--failures", options->run.failures, "Where the new bundle goes (default: out/replay)")
      ->default_str("out/replay");
  command->footer("Example:\n  fsdp-cts replay out/failures/*test_compute_dtype*");
  command->callback([options, testee, &shared] {
    const Suite suite = find_suite(shared.root);
    RunOptions& run = options->run;
    if (run.failures == RunOptions{}.failures) run.failures = "out/replay";
    run.keep = true;
    std::string id = options->what, recorded_fingerprint;
    int fresh_draw = 0;
    if (std::filesystem::is_directory(options->what)) {
      const BundleHead head = read_bundle(options->what);
      id = head.case_id;
      recorded_fingerprint = head.fingerprint;
      Json kept = head.options;
      if (testee->count() > 0 && kept.value("--testee", RunOptions{}.testee.spec) != run.testee.spec) {
        kept.erase("--testee");
        kept.erase("--python");
      }
      take_options(kept, run);
      fresh_draw = head.fresh_draw;
    }
    const std::vector<Case> selected =
        run.scenarios.empty() ? select(suite, {id}) : select_from(run.scenarios, suite, {id});
    if (selected.size() != 1)
      throw UsageError(fmt::format("'{}' names {} cases; replay runs one", id, selected.size()));
    const Case present =
        run.fresh_data ? with_fresh_data(selected.front(), *run.fresh_data, fresh_draw) : selected.front();
    if (!recorded_fingerprint.empty() && recorded_fingerprint != fingerprint(present)) {
      std::cout
          << "note: the scenario has changed since the bundle was written; the case runs as it is now\n";
    }
    run.filters = {id};
    shared.exit_code = run_suite(run, suite, shared.processes);
  });
}

}  // namespace fsdp_cts::cli
