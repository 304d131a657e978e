#pragma once
// Copies between parameters and the flat buffers of the collectives. Within one rank's part of a buffer the
// parameters follow each other in group order, without gaps.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fsdp {

/// One parameter's place in the flat buffers of its group.
struct Slot {
  int64_t offset;  ///< within one rank's part of the buffer, in elements of the buffer
  int64_t numel;   ///< of the padded shard, in elements of the buffer
  int64_t shard_dim;
  at::IntArrayRef sizes;  ///< of the unsharded parameter
};

/// `pieces`: padded shards of any dtype, one per slot. `input`: this rank's part of the buffer, which may be
/// one of bytes.
void gather_copy_in(const std::vector<Slot>& slots, const std::vector<at::Tensor>& pieces,
                    const at::Tensor& input);
/// `output`: the parts of all ranks. `full`: one-dimensional unsharded buffers with room for ranks * numel
/// elements.
void gather_copy_out(const std::vector<Slot>& slots, const at::Tensor& output,
                     const std::vector<at::Tensor>& full, int64_t ranks);
/// Fills `input`, [ranks, sum of numel] flattened, with the gradients' pieces, cast to its dtype and padded
/// with zeros.
void reduce_copy_in(const std::vector<Slot>& slots, const std::vector<at::Tensor>& gradients,
                    const at::Tensor& input, int64_t ranks);

}  // namespace fsdp
