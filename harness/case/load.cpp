#include <algorithm>
#include <regex>
#include <set>

#include "harness/case/build_cases.hpp"
#include "harness/case/scenario_grammar.hpp"
#include "harness/case/yaml_file.hpp"

namespace fsdp_cts {
namespace {

std::vector<std::filesystem::path> scenario_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string checked_id(const DataTree& tree, Mistakes& mistakes) {
  static const std::regex form("[A-Z][A-Z0-9]*/[A-Za-z0-9_]+/[A-Za-z0-9_]+");
  const std::string id = tree.text_at("id");
  const DataTree* written = tree.find("id");
  if (written && !std::regex_match(id, form))
    mistakes.add(written->place, "id must look like SEED/Class/test_method, found " + written->shown());
  return id;
}

// The file's own scenario and one per twin: the file with a patch over it.
std::vector<Scenario> scenarios_of(DataTree tree, const std::filesystem::path& file, Mistakes& mistakes) {
  static const std::regex suffix_form("[a-z][a-z0-9_]*");
  const std::string id = checked_id(tree, mistakes);
  std::vector<DataTree::Entry> twins;
  if (const DataTree* written = tree.find("twins")) twins = written->entries;
  // The table says what `twins` must be; afterwards it is no part of any scenario.
  const DataTree* written_twins = tree.find("twins");
  if (written_twins)
    check(*written_twins, find_field(scenario_fields(), "twins")->rule, "twins", Stage::written, mistakes);
  tree.erase("twins");

  std::vector<Scenario> scenarios = {{tree, id, id, file}};
  for (const DataTree::Entry& twin : twins) {
    const Place place{tree.place.file, twin.line};
    if (!std::regex_match(twin.key, suffix_form))
      mistakes.add(place, "a twin's name must be lower case letters, digits and _; found '" + twin.key + "'");
    for (const char* key : {"id", "twins", "source"})
      if (twin.value.find(key)) mistakes.add(place, std::string("a twin cannot change '") + key + "'");
    if (twin.value.is_map() && !twin.value.find("why"))
      mistakes.add(place,
                   "twin '" + twin.key + "' lacks 'why': what does it see that the original does not?");
    Scenario scenario{tree, id + "#" + twin.key, id, file};
    merge_patch(scenario.tree, twin.value);
    scenarios.push_back(std::move(scenario));
  }
  return scenarios;
}

}  // namespace

std::vector<Case> load_cases(const std::filesystem::path& conformance) {
  Mistakes mistakes;
  const ModelFiles models = load_model_files(conformance, mistakes);
  std::vector<Case> cases;
  std::map<std::string, std::string> file_of_id;
  for (const std::filesystem::path& file : scenario_files(conformance / "scenarios")) {
    const std::string name = file.string();
    DataTree tree = read_yaml(file, name, mistakes);
    if (!tree.is_map()) {
      mistakes.add(tree.place, "a scenario file must be a map");
      continue;
    }
    for (const Scenario& scenario : scenarios_of(std::move(tree), file, mistakes)) {
      if (const auto [other, fresh] = file_of_id.emplace(scenario.id, name); !fresh)
        mistakes.add(scenario.tree.place, "id '" + scenario.id + "' is taken by " + other->second);
      const std::size_t noted = mistakes.noted();
      check_written_scenario(scenario, mistakes);
      // Evaluation presumes the shapes that the tables ask for.
      if (mistakes.noted() != noted) continue;
      std::vector<Case> built = build_cases(scenario, models, mistakes);
      std::move(built.begin(), built.end(), std::back_inserter(cases));
    }
  }
  mistakes.throw_if_any();
  return cases;
}

}  // namespace fsdp_cts
