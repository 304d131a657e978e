#pragma once
// Gradients from the formula, cut to what the optimizer of this rank has, whatever the sharding: optimizers
// can be compared bit for bit between numbers of ranks, which a mean over
// ranks would not allow. A rank whose piece is empty gets no gradient for it, so that its optimizer skips it.
#include <ATen/ops/zeros_like.h>

#include "fsdp/flat/inspection.hpp"
#include "fsdp/fully_shard.hpp"
#include "tests/models.hpp"

namespace fsdp::testing {

inline void set_flat_gradients(const torch::nn::Module& model, int64_t salt) {
  for (const auto& entry : flat::named_original_parameters(model)) {
    const auto& piece = entry.shard_piece;
    ++salt;
    if (piece.length == 0) continue;
    auto& gradient = entry.updated.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(entry.updated);
    const auto whole = values(piece.shape, salt).reshape(-1);
    gradient.view(-1)
        .narrow(0, entry.state_offset, piece.length)
        .copy_(whole.narrow(0, piece.start, piece.length));
  }
}

inline void set_gradients(const torch::nn::Module& model, int64_t salt) {
  for (const auto& entry : named_parameters(model)) {
    const auto shape = entry.layout ? entry.layout->global_shape : entry.parameter.sizes().vec();
    auto gradient = values(shape, ++salt);
    if (entry.layout)
      gradient = gradient.narrow(entry.layout->dim, entry.layout->start, entry.layout->length);
    if (gradient.numel() > 0) entry.parameter.mutable_grad() = gradient.clone();
  }
}

}  // namespace fsdp::testing
