#include "harness/case/coverage.hpp"

#include <algorithm>
#include <set>

#include "harness/case/scenario_grammar.hpp"
#include "harness/case/yaml_file.hpp"

namespace fsdp_cts {
namespace {

// A case without its world: what upstream counts once.
struct Combination {
  bool of_seed = false, runnable = false, cpu_form = false, skipped = false;
};

std::string without_world(const Case& a_case) {
  return a_case.id.substr(0, a_case.id.rfind("world="));
}

std::string plural(int count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

void add_faults(const MethodCoverage& method, std::vector<std::string>& faults) {
  const std::string& name = method.seed.method;
  if (method.present > method.seed.cases)
    faults.push_back(name + ": " + plural(method.present, "combination") + " present, upstream has " +
                     std::to_string(method.seed.cases) + "; count the surplus as additional_axes");
  const bool too_many = method.skipped > method.seed.early_returns;
  const bool too_few = method.missing() == 0 && method.skipped < method.seed.early_returns;
  if (too_many || too_few)
    faults.push_back(name + ": " + plural(method.skipped, "early return") + " marked by skip, upstream has " +
                     std::to_string(method.seed.early_returns));
}

Json totals(const std::string& seed, const std::vector<MethodCoverage>& methods) {
  int count = 0, expected = 0, present = 0, runnable = 0, missing = 0;
  for (const MethodCoverage& method : methods) {
    if (method.seed.seed != seed) continue;
    ++count;
    expected += method.seed.cases;
    present += method.present;
    runnable += method.runnable;
    missing += std::max(0, method.missing());
  }
  return {{"seed", seed},       {"methods", count},     {"expected", expected},
          {"present", present}, {"runnable", runnable}, {"missing", missing}};
}

}  // namespace

std::vector<SeedMethod> load_seeds(const std::filesystem::path& conformance) {
  Mistakes mistakes;
  const DataTree tree =
      read_yaml(conformance / "seeds.yaml", (conformance / "seeds.yaml").string(), mistakes);
  const DataTree* methods = tree.find("methods");
  if (!methods || !methods->is_map()) mistakes.add(tree.place, "lacks the map 'methods'");
  std::vector<SeedMethod> result;
  for (const DataTree::Entry& entry : methods ? methods->entries : std::vector<DataTree::Entry>{}) {
    const std::size_t noted = mistakes.noted();
    DataTree facts = entry.value;
    check(facts, {.types = types::map, .fields = &seed_method_fields()}, entry.key, Stage::evaluated,
          mistakes);
    if (mistakes.noted() != noted) continue;
    fill_defaults(facts, seed_method_fields());
    const auto number = [&](const char* key) { return facts.find(key)->scalar.get<int>(); };
    result.push_back({entry.key, entry.key.substr(0, entry.key.find('/')), number("items"), number("cases"),
                      number("early_returns")});
  }
  mistakes.throw_if_any();
  return result;
}

Coverage measure_coverage(const std::vector<Case>& cases, const std::vector<SeedMethod>& seeds,
                          const Machine& machine) {
  std::map<std::string, std::map<std::string, Combination>> by_method;
  for (const Case& a_case : cases) {
    Combination& combination = by_method[a_case.method][without_world(a_case)];
    combination.of_seed |= a_case.seed_cases > 0;
    combination.skipped |= a_case.skip_reason.has_value();
    combination.cpu_form |= !a_case.cpu_form.empty();
    combination.runnable |= !why_not_runnable(a_case, machine);
  }

  Coverage coverage;
  std::set<std::string> known;
  for (const SeedMethod& seed : seeds) {
    known.insert(seed.method);
    MethodCoverage& method = coverage.methods.emplace_back();
    method.seed = seed;
    for (const auto& [id, combination] : by_method[seed.method]) {
      method.present += combination.of_seed;
      method.additions += !combination.of_seed;
      method.runnable += combination.of_seed && combination.runnable;
      method.cpu_forms += combination.of_seed && combination.runnable && combination.cpu_form;
      method.skipped += combination.of_seed && combination.skipped;
    }
    coverage.expected += seed.cases;
    coverage.present += method.present;
    coverage.runnable += method.runnable;
    coverage.cpu_forms += method.cpu_forms;
    coverage.missing += std::max(0, method.missing());
    coverage.methods_present += method.present > 0;
    add_faults(method, coverage.faults);
  }
  for (const auto& [method, combinations] : by_method)
    if (!known.count(method))
      coverage.faults.push_back(method + ": a scenario of this method exists, seeds.yaml does not list it");
  return coverage;
}

Json coverage_json(const Coverage& coverage) {
  Json methods = Json::array(), seeds = Json::array();
  std::vector<std::string> seed_order;
  for (const MethodCoverage& method : coverage.methods) {
    methods.push_back({{"method", method.seed.method},
                       {"seed", method.seed.seed},
                       {"items", method.seed.items},
                       {"expected", method.seed.cases},
                       {"early_returns", method.seed.early_returns},
                       {"present", method.present},
                       {"runnable", method.runnable},
                       {"cpu_forms", method.cpu_forms},
                       {"skipped", method.skipped},
                       {"additions", method.additions},
                       {"missing", method.missing()}});
    if (std::find(seed_order.begin(), seed_order.end(), method.seed.seed) == seed_order.end())
      seed_order.push_back(method.seed.seed);
  }
  for (const std::string& seed : seed_order) seeds.push_back(totals(seed, coverage.methods));
  return {{"complete", coverage.complete()},
          {"expected", coverage.expected},
          {"present", coverage.present},
          {"runnable", coverage.runnable},
          {"cpu_forms", coverage.cpu_forms},
          {"missing", coverage.missing},
          {"methods_present", coverage.methods_present},
          {"seeds", seeds},
          {"methods", methods},
          {"faults", coverage.faults}};
}

}  // namespace fsdp_cts
