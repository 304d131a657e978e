// Expressions inside data: replaces every ${…} and drops what `when` excludes.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "harness/scenario/read/mistakes.hpp"
#include "harness/scenario/resolve/expression.hpp"

namespace fsdp_cts {

// List elements that are maps may carry `when` (an expression without ${}, or true/false); it is removed, and
// the element with it when false. A value whose expression cannot be evaluated becomes unknown and its
// mistake is noted.
DataTree evaluated(const DataTree& tree, const Scope& scope, Mistakes& mistakes);

// What is made of parts of a scenario: once for all scopes that agree about the names which a part reads.
class MadeParts {
 public:
  // What `make` gives for `written`, which stays where it is, in this scope. Made anew each time where a mistake
  // is noted. Valid until the next call.
  const nlohmann::ordered_json& of(const DataTree& written, const Scope& scope, Mistakes& mistakes,
                                   const std::function<nlohmann::ordered_json()>& make);

 private:
  struct Part {
    std::set<std::string> names;                         // that it reads
    std::map<std::string, nlohmann::ordered_json> made;  // by their values
  };
  std::unordered_map<const DataTree*, Part> parts_;
  nlohmann::ordered_json with_mistakes_;
};

// The truth of a `when`; true when it is absent or cannot be evaluated, which is then noted.
bool holds(const DataTree* when, const Scope& scope, Mistakes& mistakes);

}  // namespace fsdp_cts
