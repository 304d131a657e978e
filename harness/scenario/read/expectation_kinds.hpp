// The kinds of expectations of LANGUAGE.md §7 as a table.
#pragma once

#include "harness/scenario/case.hpp"
#include "harness/scenario/read/grammar.hpp"

namespace fsdp_cts {

struct ExpectationKind {
  std::string name;
  std::string main;        // the argument that a value in place of a map stands for; "" when there is none
  Fields arguments;        // of a closed map
  const char* about = "";  // a sentence with {argument} where its value goes; {} is the whole value
  std::optional<Rule> whole = {};  // instead of arguments: the form of the whole value
};

const std::vector<ExpectationKind>& expectation_kinds_of_language();
const ExpectationKind* find_expectation_kind(std::string_view name);
// What must have been observed for an expectation to have anything to look at: names as `observe` has them.
std::vector<std::string> observations_needed(const std::string& kind, const Json& arguments);
const Fields& expectation_modifiers();  // clause, label, iteration, model, since, until

}  // namespace fsdp_cts
