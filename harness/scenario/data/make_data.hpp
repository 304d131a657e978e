#pragma once

#include "harness/protocol/tensor.hpp"
#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// Evaluates the case's data section: names as in PROTOCOL.md §4. The same case gives the same bytes on every
// machine.
TensorMap make_data(const Case& a_case);

}  // namespace fsdp_cts
