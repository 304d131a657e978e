#pragma once
// The norm of gradients that are spread over ranks, and clipping by it.
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// Gradients whose parts lie on the ranks of a group.
struct ShardedGradients {
  std::shared_ptr<Communicator> group;
  std::vector<at::Tensor> shards;  ///< of this rank; may be none, or empty
};

/// The norm over all of them, in `dtype` on `device`. `whole`: gradients that are the same on every rank.
/// `norm_type`: 1, 2, any other positive number, or infinity. Collective: one all-reduce per entry of
/// `sharded`, in order, also from ranks without a gradient.
at::Tensor total_norm(const std::vector<ShardedGradients>& sharded, const std::vector<at::Tensor>& whole,
                      double norm_type, at::Device device, at::ScalarType dtype);

/// Scales in place by max_norm / (norm + 1e-6), at most 1.
void scale_to_norm(const std::vector<at::Tensor>& gradients, double max_norm, const at::Tensor& norm);

}  // namespace fsdp
