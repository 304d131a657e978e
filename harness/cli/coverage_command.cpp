#include <fmt/format.h>

#include <iostream>
#include <set>

#include "harness/case/coverage.hpp"
#include "harness/cli/commands.hpp"
#include "harness/cli/suite.hpp"
#include "harness/report/ndjson.hpp"

namespace fsdp_cts::cli {
namespace {

// Upstream methods of which every judged case of the report passed.
std::set<std::string> passing_methods(const Report& report) {
  std::set<std::string> passing, failing;
  for (const Json& record : report.cases) {
    const std::string verdict = record.at("verdict").get<std::string>();
    if (verdict == "skipped" || verdict == "unsupported") continue;
    (verdict == "pass" ? passing : failing).insert(record.at("method").get<std::string>());
  }
  for (const std::string& method : failing) passing.erase(method);
  return passing;
}

void print(const Coverage& coverage, const std::optional<std::set<std::string>>& passing) {
  std::string seed;
  for (const MethodCoverage& method : coverage.methods) {
    if (method.seed.seed != seed) {
      seed = method.seed.seed;
      std::cout << seed << "\n";
    }
    const std::string name = method.seed.method.substr(method.seed.method.find('/') + 1);
    std::cout << fmt::format(
        "  {:<9} {:>4} of {:>4} present, {:>4} runnable here{}{}  {}\n",
        method.missing() > 0 ? (method.present ? "partial" : "missing") : "complete", method.present,
        method.seed.cases, method.runnable,
        method.additions ? fmt::format(", {} additions", method.additions) : "",
        passing ? (passing->count(method.seed.method) ? ", passing" : ", not passing") : "", name);
  }
  for (const std::string& fault : coverage.faults) std::cout << "fault: " << fault << "\n";
  std::cout << fmt::format(
      "{} of {} methods, {} of {} upstream cases present, {} runnable here ({} of them in their nearest CPU "
      "form), {} missing\n",
      coverage.methods_present, coverage.methods.size(), coverage.present, coverage.expected,
      coverage.runnable, coverage.cpu_forms, coverage.missing);
  if (passing) std::cout << fmt::format("{} methods pass in the report given\n", passing->size());
}

}  // namespace

void add_coverage(CLI::App& app, Shared& shared) {
  struct Options {
    bool json = false;
    std::string report;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("coverage", "Compare the scenarios with the upstream test methods; fails on a gap");
  command->add_flag("--json", options->json, "For scripts");
  command->add_option("--report", options->report, "Also say which methods pass in this report");
  command->footer("Examples:\n  fsdp-cts coverage\n  fsdp-cts coverage --report out/conformance.ndjson");
  command->callback([options, &shared] {
    const Suite suite = find_suite(shared.root);
    const Coverage coverage =
        measure_coverage(load_cases(suite.conformance()), load_seeds(suite.conformance()), this_machine());
    std::optional<std::set<std::string>> passing;
    if (!options->report.empty()) passing = passing_methods(read_report(options->report));
    if (options->json) {
      Json json = coverage_json(coverage);
      if (passing) json["passing_methods"] = *passing;
      std::cout << json.dump(1) << "\n";
    } else {
      print(coverage, passing);
    }
    shared.exit_code = coverage.complete() ? 0 : 1;
  });
}

}  // namespace fsdp_cts::cli
