#include "harness/scenario/catalogue/load.hpp"

#include <algorithm>
#include <fstream>

#include "harness/protocol/pattern.hpp"
#include "harness/scenario/catalogue/side_by_side.hpp"
#include "harness/scenario/read/mistakes.hpp"
#include "harness/scenario/read/scenario_grammar.hpp"
#include "harness/scenario/read/yaml_file.hpp"
#include "harness/scenario/resolve/build_cases.hpp"

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

// What a file's line `id: ...` says, found without parsing the file; empty if it has none that can be seen
// so.
std::string stated_id(const std::filesystem::path& file) {
  std::ifstream in(file);
  const std::string key = "id: ";
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return "";
}

std::string checked_id(const DataTree& tree, Mistakes& mistakes) {
  static const Pattern form("[A-Z][A-Z0-9]*/[A-Za-z0-9_]+/[A-Za-z0-9_]+");
  std::string id = tree.text_at("id");
  const DataTree* written = tree.find("id");
  if (written && !form.matches(id))
    mistakes.add(written->place, "id must look like SEED/Class/test_method, found " + written->shown());
  return id;
}

void check_source(const DataTree& tree, Mistakes& mistakes) {
  const DataTree* source = tree.find("source");
  if (!source || !source->is_map()) return;
  const bool own = source->find("own");
  if (own && source->entries.size() > 1)
    mistakes.add(source->place, "a source is upstream's (file) or our own (own), not both");
  if (!own && !source->find("file")) mistakes.add(source->place, "source lacks the key 'file' or 'own'");
  if (source->find("seed") && !source->find("lines"))
    mistakes.add(source->place, "the source of a seed lacks the key 'lines'");
}

// The file's own scenario and one per twin: the file with a patch over it.
std::vector<Scenario> scenarios_of(DataTree tree, const std::filesystem::path& file, Mistakes& mistakes) {
  static const Pattern suffix_form("[a-z][a-z0-9_]*");
  const std::string id = checked_id(tree, mistakes);
  std::vector<DataTree::Entry> twins;
  if (const DataTree* written = tree.find("twins")) twins = written->entries;
  // The table says what `twins` must be; afterwards it is no part of any scenario.
  const DataTree* written_twins = tree.find("twins");
  if (written_twins)
    check(*written_twins, find_field(scenario_fields(), "twins")->rule, "twins", Stage::written, mistakes);
  tree.erase("twins");
  check_source(tree, mistakes);

  if (const DataTree* of_seed = tree.find("of_seed"); of_seed && !of_seed->is_string())
    mistakes.add(
        of_seed->place,
        "the scenario itself is upstream's: 'of_seed' is an expression here, true for the cases that are");
  std::vector<Scenario> scenarios = {{tree, id, id, file}};
  tree.erase("of_seed");
  for (const DataTree::Entry& twin : twins) {
    const SourcePlace place{tree.place.file, twin.line};
    if (!suffix_form.matches(twin.key))
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

// What one file gives. Files do not depend on each other, so they are read side by side.
struct LoadedFile {
  std::vector<Case> cases;
  std::vector<std::pair<std::string, SourcePlace>> ids;  // of the scenario and its twins
  Mistakes mistakes;
};

void load_tree(DataTree tree, const std::filesystem::path& file, const ModelFiles& models,
               const Wanted& wanted, LoadedFile& loaded) {
  if (!tree.is_map()) {
    // Of a file that is no YAML at all the reader has reported that already.
    if (loaded.mistakes.noted() == 0) loaded.mistakes.add(tree.place, "a scenario file must be a map");
    return;
  }
  for (const Scenario& scenario : scenarios_of(std::move(tree), file, loaded.mistakes)) {
    loaded.ids.emplace_back(scenario.id, scenario.tree.place);
    const std::size_t noted = loaded.mistakes.noted();
    check_written_scenario(scenario, loaded.mistakes);
    // Evaluation presumes the shapes that the tables ask for.
    if (loaded.mistakes.noted() != noted) continue;
    std::vector<Case> built = build_cases(scenario, models, wanted, loaded.mistakes);
    std::move(built.begin(), built.end(), std::back_inserter(loaded.cases));
  }
}

LoadedFile load_file(const std::filesystem::path& file, const ModelFiles& models, const Wanted& wanted) {
  LoadedFile loaded;
  DataTree tree = read_yaml(file, file.string(), loaded.mistakes);
  load_tree(std::move(tree), file, models, wanted, loaded);
  return loaded;
}

std::vector<LoadedFile> load_files(const std::vector<std::filesystem::path>& files, const ModelFiles& models,
                                   const Wanted& wanted) {
  std::vector<LoadedFile> loaded(files.size());
  side_by_side(files.size(), [&](std::size_t i) { loaded[i] = load_file(files[i], models, wanted); });
  return loaded;
}

std::vector<Case> load(const std::vector<std::filesystem::path>& files,
                       const std::filesystem::path& conformance, const Wanted& wanted) {
  Mistakes mistakes;
  const ModelFiles models = load_model_files(conformance, mistakes);
  std::vector<Case> cases;
  std::map<std::string, SourcePlace> place_of_id;
  for (LoadedFile& loaded : load_files(files, models, wanted)) {
    mistakes.add_all(loaded.mistakes);
    for (const auto& [id, place] : loaded.ids)
      if (const auto [other, fresh] = place_of_id.emplace(id, place); !fresh)
        mistakes.add(place, "id '" + id + "' is taken by " + other->second.text());
    std::move(loaded.cases.begin(), loaded.cases.end(), std::back_inserter(cases));
  }
  mistakes.throw_if_any();
  return cases;
}

// A file, or all below a folder.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& scenarios) {
  if (!std::filesystem::is_directory(scenarios)) return {scenarios};
  return scenario_files(scenarios);
}

void erase_unselected(std::vector<std::filesystem::path>& files, const Filter& filter) {
  std::erase_if(files, [&](const std::filesystem::path& file) {
    const std::string id = stated_id(file);
    return !id.empty() && !filter.may_accept_some_of(id);
  });
}

// At the cost of the selected cases only.
FilterResult load_selected(std::vector<std::filesystem::path> files, const std::filesystem::path& conformance,
                           const std::vector<std::string>& terms) {
  const Filter filter(terms);
  erase_unselected(files, filter);
  const Wanted wanted = [&](const Case& each) { return filter.accepts(each); };
  return select_cases(load(files, conformance, wanted), terms);
}

// All of the suite's; throws if there is none.
std::vector<std::filesystem::path> scenario_files_of(const std::filesystem::path& conformance) {
  std::vector<std::filesystem::path> files = scenario_files(conformance / "scenarios");
  if (files.empty())
    throw ScenarioError("no scenario files below " + (conformance / "scenarios").string() +
                        "; is this the conformance folder?");
  return files;
}

}  // namespace

std::vector<Case> load_scenario_files(const std::filesystem::path& scenarios,
                                      const std::filesystem::path& conformance) {
  return load(files_below(scenarios), conformance, {});
}

FilterResult load_selected_scenario_files(const std::filesystem::path& scenarios,
                                          const std::filesystem::path& conformance,
                                          const std::vector<std::string>& terms) {
  return load_selected(files_below(scenarios), conformance, terms);
}

std::vector<Case> load_scenario(const std::string& text, const std::string& name, const ModelFiles& models,
                                Mistakes& mistakes) {
  LoadedFile loaded;
  DataTree tree = parse_yaml(text, name, loaded.mistakes);
  load_tree(std::move(tree), name, models, {}, loaded);
  mistakes.add_all(loaded.mistakes);
  return std::move(loaded.cases);
}

std::vector<Case> load_cases(const std::filesystem::path& conformance) {
  return load(scenario_files_of(conformance), conformance, {});
}

std::vector<Case> load_cases_of_files(const std::filesystem::path& conformance,
                                      const std::vector<std::string>& terms) {
  std::vector<std::filesystem::path> files = scenario_files_of(conformance);
  erase_unselected(files, Filter(terms));
  return load(files, conformance, {});
}

FilterResult load_selected_cases(const std::filesystem::path& conformance,
                                 const std::vector<std::string>& terms) {
  return load_selected(scenario_files_of(conformance), conformance, terms);
}

}  // namespace fsdp_cts
