#pragma once

#include "harness/scenario/case.hpp"
#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts {

// Models, inputs, registers, optimizers, labels and attempts that are named exist; what is expected is
// observed. `scenario` gives the file; lines come from the resolved steps.
void check_references(const Case& a_case, const DataTree& scenario, Mistakes& mistakes);

}  // namespace fsdp_cts
