// The verbs of LANGUAGE.md §6 as a table: names, arguments, defaults.
#pragma once

#include "harness/scenario/read/grammar.hpp"

namespace fsdp_cts {

struct Verb {
  std::string name;
  std::string main;  // the argument that a value in place of a map stands for
  Fields arguments;
  const char* about = "";  // a sentence with {argument} where its value goes
};

const std::vector<Verb>& verbs();  // as they stand in resolved programs
const Verb* find_verb(std::string_view name);

// Beside a verb: label, ranks. Of blocks: the keys of {repeat: …, do: …}, {within: …, do: …}, {attempt: …,
// do: …}.
const Fields& step_modifiers();
const std::vector<std::string>& block_names();
const Fields& block_fields(std::string_view block);

// Only of `enter` and `leave` with scope summon.
const Fields& summon_arguments();
// What an optimizer of this kind takes by default, as in upstream's constructors.
const Fields& optimizer_defaults(std::string_view kind);

}  // namespace fsdp_cts
