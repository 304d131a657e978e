// How much work an operator of PyTorch is, from what it is called with.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "harness/sim/virtual_time.hpp"

namespace fsdp_cts::sim {

// `arguments` and `results` as after the call. Floating-point operations are those of matrix
// products, convolutions and fused attention, two for a product and its sum, counted whether an attention is
// causal or not; of other operators the bytes say how long they take.
Cost cost_of(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
             c10::ArrayRef<c10::IValue> results);

// Such an operator reads nothing, whatever its name, and is no work.
bool makes_a_view(const c10::FunctionSchema& schema);

}  // namespace fsdp_cts::sim
