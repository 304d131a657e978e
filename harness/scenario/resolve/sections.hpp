// The sections of a case: data, plans and expectations, each resolved from the written one. After a mistake
// the result is incomplete.
#pragma once

#include <map>

#include "harness/scenario/case.hpp"
#include "harness/scenario/resolve/evaluation.hpp"

namespace fsdp_cts {

Json resolve_data(const DataTree& written, const Scope& scope, Mistakes& mistakes);

void check_written_plan(const DataTree& plan, Mistakes& mistakes);
Json resolve_plan(const DataTree& written, const Scope& scope, Mistakes& mistakes);

void check_written_expectations(const DataTree& expect, Mistakes& mistakes);

// Those of a scenario's expectations that a case has, in their full form. They carry their `line`.
class ExpectationResolver {
 public:
  explicit ExpectationResolver(const DataTree& written) : written_(written) {}  // kept by reference
  Json resolve(const Scope& scope, Lane lane, Mistakes& mistakes);

 private:
  const DataTree& written_;
  std::map<Lane, MadeParts> of_lane_;  // which decides about defaults
};

}  // namespace fsdp_cts
