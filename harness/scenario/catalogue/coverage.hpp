// How much of the upstream test files the scenarios cover. The truth is conformance/seeds.yaml for the five
// seeds, of which every combination is due, and conformance/upstream.yaml for the rest of upstream's tree. An
// upstream combination counts once however many worlds it runs at.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/scenario/catalogue/machine.hpp"

namespace fsdp_cts {

// One upstream test method, as seeds.yaml lists it.
struct SeedMethod {
  std::string method;     // "F2MP/Class/test"
  std::string seed;       // "F2MP"
  int items = 0;          // tests after decorator expansion
  int cases = 0;          // parameter combinations
  int early_returns = 0;  // combinations upstream returns early from, counted in `cases`
};

// Throws ScenarioError with file and line.
std::vector<SeedMethod> load_seeds(const std::filesystem::path& conformance);

// Some files of upstream's tree beyond the seeds, as upstream.yaml lists them.
struct UpstreamArea {
  std::string name;  // "F2TRAIN", the first part of its scenarios' ids
  int methods = 0;   // of upstream
  int out = 0;       // of these, outside of the suite's subject
};

// Throws ScenarioError with file and line.
std::vector<UpstreamArea> load_upstream(const std::filesystem::path& conformance);

struct AreaCoverage {
  UpstreamArea area;
  int present = 0;       // methods that a scenario stands for
  int combinations = 0;  // of these methods' scenarios, without twins and further worlds
  int runnable = 0;      // of `combinations`
};

struct MethodCoverage {
  SeedMethod seed;
  int present = 0;    // combinations that a scenario has
  int runnable = 0;   // of these, runnable on this machine at one of their worlds; early returns are not
  int cpu_forms = 0;  // of `runnable`, those that a CPU does less of than upstream does on a GPU
  int programs = 0;   // distinct programs among `runnable`, each combination at the first world it runs at
  int skipped = 0;    // of `present`, marked as early returns
  int additions = 0;  // scenario cases at their first world that stand for no upstream combination (twins,
                      // further axis values)
  int missing() const { return seed.cases - present; }
};

struct Tally {
  int all = 0;
  int numeric = 0;  // of the exact or the tolerance lane
  int exact = 0;    // of the exact lane
};

struct Coverage {
  std::vector<MethodCoverage> methods;  // in the order of seeds.yaml
  std::vector<AreaCoverage> areas;      // in the order of upstream.yaml
  // Of upstream's whole tree, the seeds' methods and the areas' together.
  int upstream_methods = 0, upstream_present = 0;
  int own = 0;  // scenarios that no upstream test is like
  std::vector<std::string>
      faults;  // scenarios of no known method, more combinations than upstream has, early returns that differ
  int expected = 0, present = 0, runnable = 0, cpu_forms = 0, programs = 0, missing = 0;
  int methods_present = 0;             // with at least one combination
  std::map<std::string, int> dropped;  // what a CPU form does without, and for how many of `cpu_forms`
  Tally cases, distinct;               // all cases runnable here: every one, and every program once
  // Scenarios of which every expectation looks at what testees report about themselves (report.hpp).
  std::vector<std::string> self_reported;
  bool complete() const { return missing == 0 && faults.empty(); }
};

Coverage measure_coverage(const std::vector<Case>& cases, const std::vector<SeedMethod>& seeds,
                          const std::vector<UpstreamArea>& upstream, const Machine& machine);

// {complete, expected, present, runnable, cpu_forms, programs, missing, methods: [{method, seed, items,
// expected, early_returns, present, runnable, cpu_forms, programs, skipped, additions, missing}], seeds:
// [{seed, methods, expected, present, runnable, missing}], dropped: {sentence: combinations}, runnable_cases
// and distinct_programs: {all, numeric, exact}, upstream: {methods, present, areas: [{area, methods, out,
// present, combinations, runnable}]}, own, self_reported: [scenario], faults}
Json coverage_json(const Coverage& coverage);

}  // namespace fsdp_cts
