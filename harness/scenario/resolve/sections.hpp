// The sections of a case: data, plans and expectations, each resolved from the written one. After a mistake
// the result is incomplete.
#pragma once

#include "harness/scenario/case.hpp"
#include "harness/scenario/resolve/evaluation.hpp"

namespace fsdp_cts {

Json resolve_data(const DataTree& written, const Scope& scope, Mistakes& mistakes);

void check_written_plan(const DataTree& plan, Mistakes& mistakes);
Json resolve_plan(const DataTree& written, const Scope& scope, Mistakes& mistakes);

void check_written_expectations(const DataTree& expect, Mistakes& mistakes);
Json resolve_expectations(const DataTree& written, const Scope& scope, Lane lane, Mistakes& mistakes);

}  // namespace fsdp_cts
