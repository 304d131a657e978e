#include "harness/scenario/resolve/model_files.hpp"

#include <algorithm>

#include "harness/scenario/read/grammar.hpp"
#include "harness/scenario/read/module_types.hpp"
#include "harness/scenario/read/scenario_grammar.hpp"
#include "harness/scenario/read/yaml_file.hpp"
#include "harness/scenario/resolve/resolve_module.hpp"

namespace fsdp_cts {

ModelFiles load_model_files(const std::filesystem::path& conformance, Mistakes& mistakes) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(conformance / "models"))
    for (const auto& entry : std::filesystem::directory_iterator(conformance / "models"))
      if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());

  ModelFiles files;
  for (const std::filesystem::path& path : paths) {
    DataTree tree = read_yaml(path, path.string(), mistakes);
    if (!tree.is_map()) {
      mistakes.add(tree.place, "a model file must be a map");
      continue;
    }
    check_fields(tree, model_file_fields(), "", Stage::written, mistakes);
    const DataTree* id = tree.find("id");
    if (id && id->is_string() && id->scalar.get<std::string>() != path.stem().string())
      mistakes.add(id->place,
                   "id must be the file's name '" + path.stem().string() + "', found " + id->shown());
    ModelFile file;
    if (const DataTree* parameters = tree.find("parameters"); parameters && parameters->is_map())
      file.parameters = *parameters;
    if (const DataTree* module = tree.find("module")) file.module = *module;
    files.emplace(path.stem().string(), std::move(file));
  }
  // Every file must make sense with its own defaults, whether a scenario uses it or not.
  ModuleResolver resolver(files);
  for (const auto& [name, file] : files) {
    Scope defaults;
    bool complete = !file.module.is_null();
    for (const DataTree::Entry& parameter : file.parameters.entries) {
      defaults[parameter.key] = parameter.value.json();
      complete = complete && !parameter.value.is_null();
    }
    if (complete) resolver.resolve(file.module, defaults, mistakes);
  }
  return files;
}

}  // namespace fsdp_cts
