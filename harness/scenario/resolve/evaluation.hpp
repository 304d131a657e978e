// Expressions inside data: replaces every ${…} and drops what `when` excludes.
#pragma once

#include "harness/scenario/read/mistakes.hpp"
#include "harness/scenario/resolve/expression.hpp"

namespace fsdp_cts {

// List elements that are maps may carry `when` (an expression without ${}, or true/false); it is removed, and
// the element with it when false. A value whose expression cannot be evaluated becomes unknown and its
// mistake is noted.
DataTree evaluated(const DataTree& tree, const Scope& scope, Mistakes& mistakes);

// Whether `evaluated` gives the same in every scope: no expression, and nothing that may be left out. The
// tree's own `when` is not counted: that is its list's.
bool is_constant(const DataTree& tree);

// The truth of a `when`; true when it is absent or cannot be evaluated, which is then noted.
bool holds(const DataTree* when, const Scope& scope, Mistakes& mistakes);

}  // namespace fsdp_cts
