// From a module as written (use, repeat, expressions) to the resolved form a testee gets.
#pragma once

#include "harness/scenario/case.hpp"
#include "harness/scenario/resolve/evaluation.hpp"
#include "harness/scenario/resolve/model_files.hpp"

namespace fsdp_cts {

// LANGUAGE.md §3, "Resolved form".
class ModuleResolver {
 public:
  explicit ModuleResolver(const ModelFiles& files) : files_(files) {}  // kept by reference
  // After a mistake the result is incomplete but well-formed.
  Json resolve(const DataTree& written, const Scope& scope, Mistakes& mistakes);

 private:
  const ModelFiles& files_;
  MadeParts made_;
};

// Whether the path names a module inside a resolved one ("" is itself); attention's out_proj counts.
const Json* find_module(const Json& resolved, std::string_view path);
std::vector<std::string> module_paths(const Json& resolved);

}  // namespace fsdp_cts
