// From a module as written (use, repeat, expressions) to the resolved form a testee gets.
#pragma once

#include <map>

#include "harness/case/expression.hpp"
#include "harness/case/mistakes.hpp"

namespace fsdp_cts {

struct ModelFile {
  DataTree parameters;  // name -> default
  DataTree module;
};
using ModelFiles = std::map<std::string, ModelFile>;

// Reads models/*.yaml below `conformance`.
ModelFiles load_model_files(const std::filesystem::path& conformance, Mistakes& mistakes);

// LANGUAGE.md §3, "Resolved form".
class ModuleResolver {
 public:
  explicit ModuleResolver(const ModelFiles& files) : files_(files) {}  // kept by reference
  // After a mistake the result is incomplete but well-formed.
  Json resolve(const DataTree& written, const Scope& scope, Mistakes& mistakes);

 private:
  const ModelFiles& files_;
  std::map<std::string, Json> used_;  // by file and parameters: cases of a scenario mostly share their models
};

// Whether the path names a module inside a resolved one ("" is itself); attention's out_proj counts.
const Json* find_module(const Json& resolved, std::string_view path);
std::vector<std::string> module_paths(const Json& resolved);

// Names, calls and ties of a resolved Graph refer to what exists. `written` gives the places. Ties are looked
// at only when nothing below is broken.
void check_graph(const Json& graph, const DataTree& written, bool children_are_sound, Mistakes& mistakes);

}  // namespace fsdp_cts
