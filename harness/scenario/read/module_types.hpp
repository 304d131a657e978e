// The module types and graph ops of LANGUAGE.md §3 as tables.
#pragma once

#include "harness/scenario/read/grammar.hpp"

namespace fsdp_cts {

enum class Children { none, optional, required };

struct ModuleType {
  std::string name;
  Fields arguments;  // beside type, class, children
  Children children = Children::none;
  int inputs = 1;  // of a call; 0: not callable; Graph counts its own
  const char* about = "";
};

const std::vector<ModuleType>& module_types();
const ModuleType* find_module_type(std::string_view name);

struct GraphOp {
  std::string name;
  Rule main;      // of the value behind the op's name
  Fields others;  // `to` or `as` among them
};
const std::vector<GraphOp>& graph_ops();

bool is_norm(std::string_view type);  // norm layers have initial values of their own

}  // namespace fsdp_cts
