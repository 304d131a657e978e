#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "harness/cli/commands.hpp"
#include "harness/report/ndjson.hpp"
#include "harness/scenario/catalogue/coverage.hpp"
#include "harness/scenario/catalogue/load.hpp"
#include "harness/scenario/read/clauses.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts::cli {
namespace {

// What became, in a report, of the upstream cases of one method that this machine can run, at all their
// worlds.
struct MethodResult {
  int due = 0, passed = 0;
  std::map<std::string, int> others;  // by verdict, or "not run"
  bool passing() const { return due > 0 && passed == due; }

  std::string text() const {
    if (due == 0) return ", not runnable here";
    if (passing()) return ", passing";
    std::string list;
    for (const auto& [verdict, count] : others)
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", count, verdict);
    return fmt::format(", NOT passing: {} of {} passed, {}", passed, due, list);
  }
};
using Results = std::map<std::string, MethodResult>;

// A method passes when every case that stands for upstream's and can run here was judged and passed. A twin
// that passed says nothing about it.
Results results(const std::vector<Case>& cases, const Report& report, const Machine& machine) {
  std::map<std::string, std::string> verdicts;
  for (const Json& record : report.cases)
    verdicts[record.at("id").get<std::string>()] = record.at("verdict").get<std::string>();
  Results by_method;
  for (const Case& a_case : cases) {
    MethodResult& result = by_method[a_case.method];
    if (a_case.seed_cases == 0 || why_not_runnable(a_case, machine)) continue;
    ++result.due;
    const auto found = verdicts.find(a_case.id);
    const std::string verdict = found == verdicts.end() ? "not run" : found->second;
    if (verdict == "pass")
      ++result.passed;
    else
      ++result.others[verdict];
  }
  return by_method;
}

std::string share(int part, int whole) {
  return fmt::format("{} of {} ({:.1f} %)", part, whole, whole ? 100.0 * part / whole : 0.0);
}

// Rules that no line of any scenario carries. Laws, which every case is subject to, hold some of them.
std::vector<std::string> without_line(const Suite& suite, const std::vector<Case>& cases) {
  Mistakes ignored;
  std::vector<std::string> result;
  std::set<std::string> carried;
  for (const Case& a_case : cases) carried.insert(a_case.clauses.begin(), a_case.clauses.end());
  for (const auto& [id, clause] : load_clauses(suite.conformance(), ignored))
    if (!carried.count(id)) result.push_back(id);
  return result;
}

void print_methods(const Coverage& coverage, const std::optional<Results>& results) {
  std::string seed;
  for (const MethodCoverage& method : coverage.methods) {
    if (method.seed.seed != seed) {
      seed = method.seed.seed;
      std::cout << seed << "\n";
    }
    const std::string name = method.seed.method.substr(method.seed.method.find('/') + 1);
    std::cout << fmt::format(
        "  {:<9} {:>4} of {:>4} present, {:>4} runnable here ({:>3} programs){}{}  {}\n",
        method.missing() > 0 ? (method.present ? "partial" : "missing") : "complete", method.present,
        method.seed.cases, method.runnable, method.programs,
        method.additions ? fmt::format(", {} additions", method.additions) : "",
        results && results->count(method.seed.method) ? results->at(method.seed.method).text() : "", name);
  }
}

// Upstream's tests beyond the seeds, and what upstream has no test of.
void print_extensions(const Coverage& coverage) {
  std::cout << "beyond the seeds\n";
  for (const AreaCoverage& one : coverage.areas)
    std::cout << fmt::format("  {:<12} {:>3} of {:>3} methods present{}, {:>4} cases, {:>4} runnable here\n",
                             one.area.name, one.present, one.area.methods,
                             one.area.out ? fmt::format(" ({} are not this suite's)", one.area.out) : "",
                             one.combinations, one.runnable);
  std::cout << fmt::format("{} scenarios of our own\nof upstream's whole tree {} of {} methods are present\n",
                           coverage.own, coverage.upstream_present, coverage.upstream_methods);
}

void print_totals(const Coverage& coverage, const std::vector<std::string>& untested) {
  for (const std::string& fault : coverage.faults) std::cout << "fault: " << fault << "\n";
  std::cout << fmt::format(
      "{} of {} methods, {} of {} upstream cases present, {} missing\n"
      "{} upstream cases are runnable here; they are {} distinct programs\n",
      coverage.methods_present, coverage.methods.size(), coverage.present, coverage.expected,
      coverage.missing, coverage.runnable, coverage.programs);
  if (coverage.cpu_forms > 0) {
    std::cout << fmt::format("{} of them run in their nearest CPU form, without this:\n", coverage.cpu_forms);
    for (const auto& [sentence, count] : coverage.dropped)
      std::cout << fmt::format("  {:>5}  {}\n", count, sentence);
  }
  std::cout << fmt::format(
      "with twins, further worlds and values: {} cases runnable here, {} distinct programs\n"
      "exact lane: {} of the cases with numbers, {} of the distinct programs\n",
      coverage.cases.all, coverage.distinct.all, share(coverage.cases.exact, coverage.cases.numeric),
      share(coverage.distinct.exact, coverage.distinct.numeric));
  if (!coverage.self_reported.empty()) {
    std::cout << fmt::format("{} scenarios rest on what testees report about themselves:\n",
                             coverage.self_reported.size());
    for (const std::string& scenario : coverage.self_reported) std::cout << "  " << scenario << "\n";
  }
  if (!untested.empty())
    std::cout << fmt::format("clauses that laws hold in every case, without a line: {}\n",
                             fmt::join(untested, ", "));
}

Json results_json(const Results& results) {
  Json methods = Json::object();
  for (const auto& [method, result] : results)
    methods[method] = {{"due", result.due},
                       {"passed", result.passed},
                       {"others", result.others},
                       {"passing", result.passing()}};
  return methods;
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
  command->add_option(
      "--report", options->report,
      "Also say which methods pass in this report: those of which every upstream case that can "
      "run here was judged and passed");
  command->footer("Examples:\n  fsdp-cts coverage\n  fsdp-cts coverage --report out/conformance.ndjson");
  command->callback([options, &shared] {
    const Suite suite = find_suite(shared.root);
    const std::vector<Case> cases = load_cases(suite.conformance());
    const Machine machine = this_machine();
    const Coverage coverage =
        measure_coverage(cases, load_seeds(suite.conformance()), load_upstream(suite.conformance()), machine);
    const std::vector<std::string> untested = without_line(suite, cases);
    std::optional<Results> passing;
    if (!options->report.empty()) passing = results(cases, read_report(options->report), machine);
    if (options->json) {
      Json json = coverage_json(coverage);
      json["clauses_without_line"] = untested;
      if (passing) json["report"] = results_json(*passing);
      std::cout << json.dump(1) << "\n";
    } else {
      print_methods(coverage, passing);
      print_extensions(coverage);
      print_totals(coverage, untested);
      if (passing)
        std::cout << fmt::format("{} methods pass in the report given\n",
                                 std::count_if(passing->begin(), passing->end(),
                                               [](const auto& each) { return each.second.passing(); }));
    }
    shared.exit_code = coverage.complete() ? 0 : 1;
  });
}

}  // namespace fsdp_cts::cli
