// From a scenario (one file, or one of its twins) to its cases. Internal to load.cpp.
#pragma once

#include "harness/case/filter.hpp"
#include "harness/case/resolve_module.hpp"

namespace fsdp_cts {

struct Scenario {
  DataTree tree;       // patched, unevaluated, without `twins`
  std::string id;      // with #suffix for a twin
  std::string method;  // without
  std::filesystem::path file;
};

// Keys, verbs, kinds and types as far as they can be judged before evaluation.
void check_written_scenario(const Scenario& scenario, Mistakes& mistakes);

// Cases that `only` rejects have no sections, just what a filter looks at.
std::vector<Case> build_cases(const Scenario& scenario, const ModelFiles& models, const Filter* only,
                              Mistakes& mistakes);

// All of this for the text of one scenario file, named `name` in mistakes. Some cases may be there although
// there are mistakes.
std::vector<Case> load_scenario(const std::string& text, const std::string& name, const ModelFiles& models,
                                Mistakes& mistakes);

// The resolved sections, each from the written one. After a mistake the result is incomplete.
Json resolve_data(const DataTree& written, const Scope& scope, Mistakes& mistakes);
Json resolve_plan(const DataTree& written, const Scope& scope, Mistakes& mistakes);
Json resolve_expectations(const DataTree& written, const Scope& scope, Lane lane, Mistakes& mistakes);
void check_written_expectations(const DataTree& expect, Mistakes& mistakes);
void check_written_plan(const DataTree& plan, Mistakes& mistakes);

// Models, inputs, registers, optimizers, labels and attempts that are named exist; what is expected is
// observed. `places` gives the file; lines come from the resolved steps.
void check_references(const Case& a_case, const DataTree& scenario, Mistakes& mistakes);

}  // namespace fsdp_cts
