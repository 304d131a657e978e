// FSDP1, wrapper or composable: from a plan to its units.
#pragma once

#include "harness/sdk/cpp/context.hpp"
#include "reference/flat_unit.hpp"

namespace fsdp_cts::reference {

// In the order in which they are made: auto-wrapped ones children first, before the unit that asked for them.
// Throws what construction throws; `context` gets the warnings.
std::vector<std::unique_ptr<Unit>> flat_units(sdk::Module& root, const Json& plan, sdk::Context& context);

}  // namespace fsdp_cts::reference
