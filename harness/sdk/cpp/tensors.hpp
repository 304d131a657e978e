// Between ATen tensors and the suite's host tensors, and dtypes by name.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>
#include <vector>

#include "harness/protocol/tensor.hpp"

namespace fsdp_cts::sdk {

using Tensors = std::vector<at::Tensor>;

// Protocol name ("bfloat16") of a dtype and back. Throw std::invalid_argument for one the protocol does not
// know.
std::string dtype_name(at::ScalarType dtype);
at::ScalarType dtype_from_name(std::string_view name);

// What a register holds, where it must be one tensor. Throws std::invalid_argument saying how to name
// several.
const at::Tensor& only_tensor(const std::string& name, const Tensors& tensors);

// A contiguous CPU copy; detached.
HostTensor to_host(const at::Tensor& tensor);
at::Tensor from_host(const HostTensor& tensor);

}  // namespace fsdp_cts::sdk
