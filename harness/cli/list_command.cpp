#include <fmt/format.h>

#include <iostream>

#include "harness/cli/commands.hpp"
#include "harness/scenario/catalogue/listing.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts::cli {
namespace {

void print(const std::vector<ListingRow>& rows) {
  long seed_cases = 0;
  std::size_t runnable = 0;
  for (const ListingRow& row : rows) {
    std::string needs;
    for (const std::string& each : row.requires_) needs += " needs " + each;
    std::cout << fmt::format("{:<9} world {} {:<8} {}{}{}\n", row.lane, row.world,
                             row.runnable ? "runnable" : "not here", row.id, needs,
                             row.runnable ? "" : "  (" + row.reason + ")");
    seed_cases += row.seed_cases;
    runnable += row.runnable;
  }
  std::cout << fmt::format(
      "{} cases, {} runnable here; they stand for {} upstream cases (counted once per world)\n", rows.size(),
      runnable, seed_cases);
}

}  // namespace

void add_list(CLI::App& app, Shared& shared) {
  struct Options {
    std::vector<std::string> filters;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "list",
      "List cases with lane, world, requirements, and whether they run here; what is read is checked");
  command->add_option("FILTER", options->filters,
                      "Globs over case ids, or seed:F2MP, lane:exact, world:2, label:gpu");
  command->add_flag("--json", options->json,
                    "An array of {id, scenario, seed, world, lane, requires, runnable, reason, seed_cases, "
                    "cpu_form, continues, clauses}");
  command->footer(
      "Examples:\n  fsdp-cts list 'seed:F2MP' world:2\n  fsdp-cts list --json | jq '[.[] | "
      "select(.runnable)] | length'");
  command->callback([options, &shared] {
    const Suite suite = find_suite(shared.root);
    // Never destroyed: to take thousands of trees apart is a fifth of the command's time, and the process ends
    // here.
    static const auto& cases = *new auto(select_checked(suite, options->filters));
    const auto rows = list_cases(cases, this_machine());
    if (options->json) {
      std::cout << listing_json(rows).dump(1) << "\n";
    } else {
      print(rows);
    }
  });
}

}  // namespace fsdp_cts::cli
