// From a scenario (one file, or one of its twins) to its cases.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "harness/scenario/case.hpp"
#include "harness/scenario/resolve/model_files.hpp"

namespace fsdp_cts {

struct Scenario {
  DataTree tree;       // patched, unevaluated, without `twins`
  std::string id;      // with #suffix for a twin
  std::string method;  // without
  std::filesystem::path file;
};

// Keys, verbs, kinds and types as far as they can be judged before evaluation.
void check_written_scenario(const Scenario& scenario, Mistakes& mistakes);

// Looks at everything but the sections; empty: every case is wanted.
using Wanted = std::function<bool(const Case&)>;

// Cases that are not wanted have no sections.
std::vector<Case> build_cases(const Scenario& scenario, const ModelFiles& models, const Wanted& wanted,
                              Mistakes& mistakes);

}  // namespace fsdp_cts
