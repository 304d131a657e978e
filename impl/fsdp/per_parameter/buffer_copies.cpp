// Host memory is copied with memcpy: at a few hundred elements the tensor library's dispatch would cost more
// than the copy, and it would be paid for every parameter several times a step. On an accelerator a launch costs more
// than a small copy: there one operator copies for all parameters, where they are cut on their rows. Anything else
// goes through tensor operations one by one.
#include "per_parameter/buffer_copies.hpp"

#include <ATen/ops/_chunk_cat.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/split_with_sizes_copy.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/storage.hpp"

namespace fsdp {
namespace {

bool plain_copy(const at::Tensor& from, const at::Tensor& to) {
  return from.is_cpu() && to.is_cpu() && from.is_contiguous() &&
         (from.scalar_type() == to.scalar_type() || to.scalar_type() == at::kByte);
}

std::byte* bytes(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

/// The shape of one rank's piece of a tensor that is cut evenly on `dim`.
std::vector<int64_t> piece_sizes(at::IntArrayRef sizes, int64_t dim, int64_t ranks) {
  auto result = sizes.vec();
  result[static_cast<size_t>(dim)] /= ranks;
  return result;
}

/// Shards that lie one after another in memory, as a parameter group lays them out, are one copy.
bool adjacent(const std::vector<at::Tensor>& pieces) {
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].scalar_type() != pieces[0].scalar_type() ||
        pieces[i].storage().unsafeGetStorageImpl() != pieces[0].storage().unsafeGetStorageImpl() ||
        pieces[i].storage_offset() != pieces[i - 1].storage_offset() + pieces[i - 1].numel()) {
      return false;
    }
  }
  return true;
}

void copy_piece(const at::Tensor& from, const at::Tensor& to) {
  if (plain_copy(from, to)) {
    std::memcpy(bytes(to), from.const_data_ptr(), from.nbytes());
  } else {
    // From pinned host memory, where shards are offloaded, without the host's waiting.
    to.copy_(to.scalar_type() == at::kByte ? from.view(at::kByte) : from, /*non_blocking=*/true);
  }
}

bool all_cut_on_rows(const std::vector<Slot>& slots) {
  return std::all_of(slots.begin(), slots.end(), [](const Slot& slot) { return slot.shard_dim == 0; });
}

/// Parts of a buffer of bytes lie where they lie: what a dtype cannot be laid over is copied out first.
at::Tensor typed(const at::Tensor& piece, at::ScalarType dtype) {
  if (piece.scalar_type() == dtype) return piece;
  const auto aligned = piece.storage_offset() % static_cast<int64_t>(c10::elementSize(dtype)) == 0;
  return (aligned ? piece : piece.clone()).view(dtype);
}

}  // namespace

void gather_copy_in(const std::vector<Slot>& slots, const std::vector<at::Tensor>& pieces,
                    const at::Tensor& input) {
  if (adjacent(pieces)) {
    const auto numel =
        std::accumulate(pieces.begin(), pieces.end(), int64_t{0},
                        [](int64_t sum, const at::Tensor& piece) { return sum + piece.numel(); });
    copy_piece(alias(pieces[0], 0, {numel}), input);
    return;
  }
  std::vector<at::Tensor> places;
  for (const auto& slot : slots) places.push_back(input.narrow(0, slot.offset, slot.numel));
  if (!input.is_cpu() && !pieces[0].is_cpu() && input.scalar_type() != at::kByte)
    return at::_foreach_copy_(places, pieces);
  for (size_t i = 0; i < slots.size(); ++i) copy_piece(pieces[i], places[i]);
}

void gather_copy_out(const std::vector<Slot>& slots, const at::Tensor& output,
                     const std::vector<at::Tensor>& full, int64_t ranks) {
  if (!output.is_cpu() && all_cut_on_rows(slots)) {
    std::vector<int64_t> numels;
    std::vector<at::Tensor> by_rank;
    for (size_t i = 0; i < slots.size(); ++i) {
      numels.push_back(slots[i].numel);
      by_rank.push_back(full[i].view(output.scalar_type()).view({ranks, slots[i].numel}));
    }
    return at::split_with_sizes_copy_out(by_rank, output.view({ranks, -1}), numels, 1);
  }
  const auto rank_numel = output.numel() / ranks;
  const auto itemsize = static_cast<size_t>(output.itemsize());
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto& slot = slots[i];
    for (int64_t r = 0; r < ranks; ++r) {
      const auto from = r * rank_numel + slot.offset;
      if (slot.shard_dim == 0 && output.is_cpu()) {
        const auto piece_bytes = static_cast<size_t>(slot.numel) * itemsize;
        std::memcpy(bytes(full[i]) + static_cast<size_t>(r) * piece_bytes,
                    bytes(output) + static_cast<size_t>(from) * itemsize, piece_bytes);
        continue;
      }
      const auto piece = typed(output.narrow(0, from, slot.numel), full[i].scalar_type());
      if (slot.shard_dim == 0) {
        full[i].view(-1).narrow(0, r * piece.numel(), piece.numel()).copy_(piece);
      } else {
        const auto sizes = piece_sizes(slot.sizes, slot.shard_dim, ranks);
        const auto height = sizes[static_cast<size_t>(slot.shard_dim)];
        full[i].view(slot.sizes).narrow(slot.shard_dim, r * height, height).copy_(piece.view(sizes));
      }
    }
  }
}

void reduce_copy_in(const std::vector<Slot>& slots, const std::vector<at::Tensor>& gradients,
                    const at::Tensor& input, int64_t ranks) {
  // One that waited for this reduction may be in another dtype than the others.
  const auto same_dtype = [&](const at::Tensor& gradient) {
    return gradient.scalar_type() == gradients.front().scalar_type();
  };
  if (!input.is_cpu() && all_cut_on_rows(slots) && std::ranges::all_of(gradients, same_dtype)) {
    auto by_rank = input.view({ranks, -1});
    at::_chunk_cat_out(by_rank, gradients, 0, ranks);
    return;
  }
  const auto rank_numel = input.numel() / ranks;
  const auto itemsize = static_cast<size_t>(input.itemsize());
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto& slot = slots[i];
    const auto& gradient = gradients[i];
    const bool plain = slot.shard_dim == 0 && plain_copy(gradient, input);
    const auto flat = slot.shard_dim == 0 && !plain ? gradient.reshape(-1) : gradient;
    for (int64_t r = 0; r < ranks; ++r) {
      const auto to = r * rank_numel + slot.offset;
      if (slot.shard_dim != 0) {
        const auto sizes = piece_sizes(slot.sizes, slot.shard_dim, ranks);
        const auto height = sizes[static_cast<size_t>(slot.shard_dim)];
        input.narrow(0, to, slot.numel)
            .view(sizes)
            .copy_(gradient.narrow(slot.shard_dim, r * height, height));
        continue;
      }
      const auto begin = std::min(r * slot.numel, gradient.numel());
      const auto numel = std::min(slot.numel, gradient.numel() - begin);
      if (plain) {
        auto* target = bytes(input) + static_cast<size_t>(to) * itemsize;
        const auto filled = static_cast<size_t>(numel) * itemsize;
        std::memcpy(target, bytes(gradient) + static_cast<size_t>(begin) * itemsize, filled);
        std::memset(target + filled, 0, static_cast<size_t>(slot.numel) * itemsize - filled);
      } else {
        input.narrow(0, to, numel).copy_(flat.narrow(0, begin, numel));
        input.narrow(0, to + numel, slot.numel - numel).zero_();
      }
    }
  }
}

}  // namespace fsdp
