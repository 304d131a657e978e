// Expressions inside data: replaces every ${…} and drops what `when` excludes.
#pragma once

#include <functional>
#include <unordered_map>

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

// What is made of parts of a scenario, kept where it is the same in every scope.
class Constants {
 public:
  // What `make` gives for `written`, which stays where it is. Made anew each time where the part is no
  // constant, or where a mistake was noted.
  nlohmann::ordered_json of(const DataTree& written, Mistakes& mistakes,
                            const std::function<nlohmann::ordered_json()>& make);

 private:
  std::unordered_map<const DataTree*, nlohmann::ordered_json> kept_;  // null: made anew
};

// The truth of a `when`; true when it is absent or cannot be evaluated, which is then noted.
bool holds(const DataTree* when, const Scope& scope, Mistakes& mistakes);

}  // namespace fsdp_cts
