#pragma once
// Values in the words of PyTorch's messages, which users match on.
#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <vector>

namespace fsdp {

std::string python_text(at::ScalarType dtype);                   ///< torch.float32
std::string python_text(at::Device device);                      ///< device(type='cuda', index=0)
std::string python_size(at::IntArrayRef sizes);                  ///< torch.Size([2, 3])
std::string python_tuple(at::IntArrayRef values);                ///< (2, 3), (2,)
std::string python_list(const std::vector<std::string>& texts);  ///< ['a', 'b']
std::string python_set(const std::set<at::ScalarType>& dtypes);  ///< {torch.bfloat16, torch.float32}

}  // namespace fsdp
