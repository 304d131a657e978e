// What the reference's answer depends on. Cases that differ only in prefetch or resharding have the same
// truth.
#pragma once

#include <string>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// Equal keys, equal answers: a hash over models, plans, program, data, switches and world without the
// settings that move data at other times but change no number. Nothing is left out where the program observes
// units or attempts something, because settings are then part of the answer.
std::string reference_key(const Case& a_case, const std::string& reduction_order,
                          const std::string& precision);

}  // namespace fsdp_cts
