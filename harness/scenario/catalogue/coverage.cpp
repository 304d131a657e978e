#include "harness/scenario/catalogue/coverage.hpp"

#include <algorithm>
#include <set>

#include "harness/scenario/read/scenario_grammar.hpp"
#include "harness/scenario/read/yaml_file.hpp"

namespace fsdp_cts {
namespace {

// A case without its world: what upstream counts once.
struct Combination {
  bool of_seed = false, runnable = false, skipped = false;
  std::string cpu_form;
  std::string program;  // fingerprint at the first world it runs at
};

// Expectations on nothing but what a testee says about itself. An error counts as seen: a case that should
// have ended and did not goes on in front of the judge.
bool is_self_reported(const Json& expectation) {
  static const std::set<std::string> kinds = {"unit_tree",  "counters",    "training_state",   "warning",
                                              "no_warning", "collectives", "collective_bytes", "order"};
  const std::string kind = expectation.begin().key();
  if (kinds.count(kind)) return true;
  const Json& arguments = expectation.begin().value();
  return arguments.is_object() && arguments.value("what", Json()) == Json::array({"units"});
}

void count(Tally& tally, const Case& a_case) {
  ++tally.all;
  tally.numeric += a_case.lane != Lane::structure;
  tally.exact += a_case.lane == Lane::exact;
}

void count_sentences(const std::string& texts, std::map<std::string, int>& counts) {
  for (std::size_t at = 0; at < texts.size();) {
    const std::size_t end = std::min(texts.find("; ", at), texts.size());
    ++counts[texts.substr(at, end - at)];
    at = end + 2;
  }
}

void measure_suite(const std::vector<Case>& cases, const Machine& machine, Coverage& coverage) {
  std::set<std::string> programs;
  std::map<std::string, bool> reported;  // by scenario, in order of id
  for (const Case& a_case : cases) {
    if (a_case.skip_reason) continue;
    const auto [only, fresh] = reported.try_emplace(a_case.scenario, true);
    only->second = only->second && std::all_of(a_case.expect.begin(), a_case.expect.end(), is_self_reported);
    if (why_not_runnable(a_case, machine)) continue;
    count(coverage.cases, a_case);
    if (programs.insert(fingerprint(a_case)).second) count(coverage.distinct, a_case);
  }
  for (const auto& [scenario, only] : reported)
    if (only) coverage.self_reported.push_back(scenario);
}

Json tally_json(const Tally& tally) {
  return {{"all", tally.all}, {"numeric", tally.numeric}, {"exact", tally.exact}};
}

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

// The entries of the file's one map, checked, with defaults filled in. Throws ScenarioError.
std::vector<std::pair<std::string, DataTree>> facts_by_name(const std::filesystem::path& file,
                                                            const char* map, const Fields& fields) {
  Mistakes mistakes;
  const DataTree tree = read_yaml(file, file.string(), mistakes);
  const DataTree* entries = tree.find(map);
  if (!entries || !entries->is_map()) mistakes.add(tree.place, "lacks the map '" + std::string(map) + "'");
  std::vector<std::pair<std::string, DataTree>> result;
  for (const DataTree::Entry& entry : entries ? entries->entries : std::vector<DataTree::Entry>{}) {
    const std::size_t noted = mistakes.noted();
    DataTree facts = entry.value;
    check(facts, {.types = types::map, .fields = &fields}, entry.key, Stage::evaluated, mistakes);
    if (mistakes.noted() != noted) continue;
    fill_defaults(facts, fields);
    result.emplace_back(entry.key, std::move(facts));
  }
  mistakes.throw_if_any();
  return result;
}

int number(const DataTree& facts, const char* key) {
  return facts.find(key)->scalar.get<int>();
}

}  // namespace

std::vector<SeedMethod> load_seeds(const std::filesystem::path& conformance) {
  std::vector<SeedMethod> result;
  for (const auto& [name, facts] : facts_by_name(conformance / "seeds.yaml", "methods", seed_method_fields()))
    result.push_back({name, name.substr(0, name.find('/')), number(facts, "items"), number(facts, "cases"),
                      number(facts, "early_returns")});
  return result;
}

std::vector<UpstreamArea> load_upstream(const std::filesystem::path& conformance) {
  std::vector<UpstreamArea> result;
  for (const auto& [name, facts] :
       facts_by_name(conformance / "upstream.yaml", "areas", upstream_area_fields()))
    result.push_back({name, number(facts, "methods"), number(facts, "out")});
  return result;
}

Coverage measure_coverage(const std::vector<Case>& cases, const std::vector<SeedMethod>& seeds,
                          const std::vector<UpstreamArea>& upstream, const Machine& machine) {
  std::map<std::string, std::map<std::string, Combination>> by_method;
  for (const Case& a_case : cases) {
    Combination& combination = by_method[a_case.method][without_world(a_case)];
    combination.of_seed |= a_case.seed_cases > 0;
    combination.skipped |= a_case.skip_reason.has_value();
    if (combination.cpu_form.empty()) combination.cpu_form = a_case.cpu_form;
    if (why_not_runnable(a_case, machine)) continue;
    combination.runnable = true;
    if (combination.program.empty() && a_case.seed_cases > 0) combination.program = fingerprint(a_case);
  }

  Coverage coverage;
  std::set<std::string> known, all_programs;
  for (const SeedMethod& seed : seeds) {
    known.insert(seed.method);
    MethodCoverage& method = coverage.methods.emplace_back();
    method.seed = seed;
    std::set<std::string> programs;
    for (const auto& [id, combination] : by_method[seed.method]) {
      method.present += combination.of_seed;
      method.additions += !combination.of_seed;
      method.runnable += combination.of_seed && combination.runnable;
      if (combination.of_seed && combination.runnable) {
        programs.insert(combination.program);
        method.cpu_forms += !combination.cpu_form.empty();
        count_sentences(combination.cpu_form, coverage.dropped);
      }
      method.skipped += combination.of_seed && combination.skipped;
    }
    method.programs = static_cast<int>(programs.size());
    coverage.expected += seed.cases;
    coverage.present += method.present;
    coverage.runnable += method.runnable;
    coverage.cpu_forms += method.cpu_forms;
    all_programs.merge(programs);
    coverage.missing += std::max(0, method.missing());
    coverage.methods_present += method.present > 0;
    add_faults(method, coverage.faults);
  }
  for (const UpstreamArea& area : upstream) coverage.areas.push_back({area});
  for (const auto& [method, combinations] : by_method) {
    if (known.count(method)) continue;
    const int of_upstream = static_cast<int>(std::count_if(
        combinations.begin(), combinations.end(), [](const auto& entry) { return entry.second.of_seed; }));
    const auto area = std::find_if(coverage.areas.begin(), coverage.areas.end(),
                                   [name = method.substr(0, method.find('/'))](const AreaCoverage& one) {
                                     return name == one.area.name;
                                   });
    if (of_upstream == 0) {
      ++coverage.own;
    } else if (area == coverage.areas.end()) {
      coverage.faults.push_back(
          method +
          ": a scenario of this method exists, neither seeds.yaml lists it nor upstream.yaml its area; one "
          "that is no upstream method's says source: {own: ...}");
    } else {
      ++area->present;
      area->combinations += of_upstream;
      for (const auto& [id, combination] : combinations)
        area->runnable += combination.of_seed && combination.runnable;
    }
  }
  coverage.upstream_methods = static_cast<int>(coverage.methods.size());
  coverage.upstream_present = coverage.methods_present;
  for (const AreaCoverage& area : coverage.areas) {
    coverage.upstream_methods += area.area.methods;
    coverage.upstream_present += area.present;
    if (area.present > area.area.methods - area.area.out)
      coverage.faults.push_back(area.area.name + ": " + plural(area.present, "method") +
                                " present, upstream has " +
                                std::to_string(area.area.methods - area.area.out) + " of this subject");
  }
  coverage.programs = static_cast<int>(all_programs.size());
  measure_suite(cases, machine, coverage);
  return coverage;
}

Json coverage_json(const Coverage& coverage) {
  Json methods = Json::array(), seeds = Json::array(), areas = Json::array();
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
                       {"programs", method.programs},
                       {"skipped", method.skipped},
                       {"additions", method.additions},
                       {"missing", method.missing()}});
    if (std::find(seed_order.begin(), seed_order.end(), method.seed.seed) == seed_order.end())
      seed_order.push_back(method.seed.seed);
  }
  for (const std::string& seed : seed_order) seeds.push_back(totals(seed, coverage.methods));
  for (const AreaCoverage& one : coverage.areas)
    areas.push_back({{"area", one.area.name},
                     {"methods", one.area.methods},
                     {"out", one.area.out},
                     {"present", one.present},
                     {"combinations", one.combinations},
                     {"runnable", one.runnable}});
  return {
      {"complete", coverage.complete()},
      {"expected", coverage.expected},
      {"present", coverage.present},
      {"runnable", coverage.runnable},
      {"cpu_forms", coverage.cpu_forms},
      {"programs", coverage.programs},
      {"missing", coverage.missing},
      {"methods_present", coverage.methods_present},
      {"seeds", seeds},
      {"methods", methods},
      {"dropped", coverage.dropped},
      {"runnable_cases", tally_json(coverage.cases)},
      {"distinct_programs", tally_json(coverage.distinct)},
      {"upstream",
       {{"methods", coverage.upstream_methods}, {"present", coverage.upstream_present}, {"areas", areas}}},
      {"own", coverage.own},
      {"self_reported", coverage.self_reported},
      {"faults", coverage.faults}};
}

}  // namespace fsdp_cts
