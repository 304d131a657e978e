// Programs: from steps as written to the straight line of flat steps that a testee gets.
#pragma once

#include "harness/scenario/case.hpp"
#include "harness/scenario/resolve/evaluation.hpp"

namespace fsdp_cts {

// Verbs, blocks and argument names, also where `when` would drop them.
void check_written_program(const DataTree& program, Mistakes& mistakes);

// Unrolls repeat, within and attempt, evaluates, checks types, fills in defaults. Steps carry their `line`.
class ProgramUnroller {
 public:
  explicit ProgramUnroller(const DataTree& program) : program_(program) {}  // kept by reference
  Json unroll(const Scope& scope, Mistakes& mistakes);

 private:
  const DataTree& program_;
  MadeParts steps_;
};

// The argument map of a verb or expectation: `value` itself, or {main: value} for a value that is no map.
DataTree expand_main(const DataTree& value, const std::string& main);

}  // namespace fsdp_cts
