// The suite's files as cases.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/scenario/catalogue/filter.hpp"
#include "harness/scenario/resolve/model_files.hpp"

namespace fsdp_cts {

// All cases of all scenarios under `conformance` (folder with scenarios/ and models/), in file and axis
// order. Throws ScenarioError listing every mistake found, not only the first.
std::vector<Case> load_cases(const std::filesystem::path& conformance);

// All cases of the files of which `terms` may select one, going by their lines `id:`. Throws
// std::invalid_argument as Filter does.
std::vector<Case> load_cases_of_files(const std::filesystem::path& conformance,
                                      const std::vector<std::string>& terms);

// load_cases, then select_cases, at the cost of the selected cases only. A file whose line `id:` shows that
// no case of it can be selected is not read further; of other cases not selected, keys, verbs and kinds are
// checked, but they are not evaluated.
FilterResult load_selected_cases(const std::filesystem::path& conformance,
                                 const std::vector<std::string>& terms);

// The cases of one scenario file, or of all below a folder, that use the model files of `conformance`. Throws
// ScenarioError like load_cases.
std::vector<Case> load_scenario_files(const std::filesystem::path& scenarios,
                                      const std::filesystem::path& conformance);
// Of these the selected ones, as load_selected_cases.
FilterResult load_selected_scenario_files(const std::filesystem::path& scenarios,
                                          const std::filesystem::path& conformance,
                                          const std::vector<std::string>& terms);

// The cases of one scenario file whose text is given; `name` stands for the file in mistakes. Some cases may
// be there although there are mistakes.
std::vector<Case> load_scenario(const std::string& text, const std::string& name, const ModelFiles& models,
                                Mistakes& mistakes);

}  // namespace fsdp_cts
