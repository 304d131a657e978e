// When are two JSON facts of one kind the same?
#pragma once

#include <optional>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

struct FactDifference {
  std::string where;  // the key or module that differs
  Json actual, expected;
};

// Key order never counts. `units` compare module by module, and settings and parameters only where both sides
// state them; `attempt` compares whether it failed and the type of the exception; all others compare `values`
// or `value`.
std::optional<FactDifference> fact_difference(const std::string& what, const Json& actual,
                                              const Json& expected);

// Equality that ignores the order of keys.
bool same_json(const Json& a, const Json& b);

// Like same_json, but maps may have keys that `wanted` does not name, at any depth.
bool holds_json(const Json& actual, const Json& wanted);

}  // namespace fsdp_cts
