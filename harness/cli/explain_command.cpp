#include <iostream>

#include "harness/cli/commands.hpp"
#include "harness/scenario/catalogue/explain.hpp"
#include "harness/suite/suite.hpp"
#include "harness/suite/testees.hpp"

namespace fsdp_cts::cli {

void add_explain(CLI::App& app, Shared& shared) {
  auto filters = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand(
      "explain", "Say in words what a case does, why it exists, what it expects, how to run it");
  command
      ->add_option("CASE", *filters,
                   "A case id, a scenario id, or a glob; of several cases the first is explained")
      ->required();
  command->footer(
      "Example:\n  fsdp-cts explain "
      "'F2MP/TestFullyShardMixedPrecisionTraining/test_compute_dtype[reshard_after_forward=2,world=4]'");
  command->callback([filters, &shared] {
    const auto selected = select(find_suite(shared.root), *filters);
    std::cout << explain_case(selected.front());
    if (selected.size() == 1) return;
    std::cout << "\nOther cases that match:\n";
    for (std::size_t i = 1; i < selected.size(); ++i) std::cout << "  " << quoted(selected[i].id) << "\n";
  });
}

}  // namespace fsdp_cts::cli
