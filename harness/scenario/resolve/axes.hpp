// Axes of a scenario and their combinations.
#pragma once

#include "harness/scenario/resolve/evaluation.hpp"

namespace fsdp_cts {

// One combination at one world size.
struct Binding {
  Scope scope;  // axes, bundle variables, world
  std::vector<std::pair<std::string, std::string>>
      axes;  // as printed in the id, in file order, world excluded
  int world = 0;
  bool of_seed = true;         // no additional axis beyond its first value
  bool quick = false;          // of the quick subset
  std::string suffix() const;  // "[axis=value,world=2]"
};

// First axis outermost, world innermost, without what `where` leaves out. Names and values that could not
// stand in an id are mistakes. In an entry of `quick`, an axis that is left out stands for its first value, a
// missing world for the smallest one. Without `quick`: the first value of every axis at the smallest world.
std::vector<Binding> expand_axes(const DataTree& scenario, Mistakes& mistakes);

// Adds the variables of `let`, in order, each seeing those before it.
void add_variables(Scope& scope, const DataTree* let, Mistakes& mistakes);

}  // namespace fsdp_cts
