#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// out = ((x0 + x1) + x2) + …, every addition rounded in the tensors' dtype; `avg` then divides by their
/// number, likewise. `out` must not overlap an addend. For the operations sum, avg and max.
void reduce_in_rank_order(const at::Tensor& out, const std::vector<at::Tensor>& addends,
                          const Reduction& reduction);

}  // namespace fsdp
