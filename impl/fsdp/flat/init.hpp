#pragma once
// From a module and its options to units: everything is worked out and checked before anything changes.
#include <memory>
#include <vector>

#include "flat/unit.hpp"

namespace fsdp::flat {

/// Makes `module` a unit, and before it those below it that its policy names. Returns the module's own state.
std::shared_ptr<FlatState> make_units(const std::shared_ptr<torch::nn::Module>& module,
                                      const FSDPOptions& options, bool composable);

}  // namespace fsdp::flat
