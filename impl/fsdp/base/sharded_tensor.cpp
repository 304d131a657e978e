#include "fsdp/sharded_tensor.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace fsdp {
namespace {

int64_t product(std::vector<int64_t>::const_iterator begin, std::vector<int64_t>::const_iterator end) {
  return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t chunk_size(int64_t size, int64_t ranks) {
  return (size + ranks - 1) / ranks;
}

Rows chunk_rows(int64_t size, int64_t ranks, int64_t rank) {
  const auto height = chunk_size(size, ranks);
  const auto begin = std::min(rank * height, size);
  return {begin, std::min(begin + height, size)};
}

std::vector<int64_t> ShardLayout::local_shape() const {
  auto shape = global_shape;
  if (!shape.empty()) shape[static_cast<size_t>(dim)] = length;
  return shape;
}

std::vector<ShardPiece> ShardLayout::pieces() const {
  const auto at = global_shape.begin() + dim;
  const auto outer = product(global_shape.begin(), at);
  const auto inner = product(at + 1, global_shape.end());
  std::vector<ShardPiece> pieces;
  if (length * inner == 0) return pieces;
  for (int64_t o = 0; o < outer; ++o) pieces.push_back({(o * *at + start) * inner, length * inner});
  return pieces;
}

int64_t ShardLayout::padding() const {
  const auto rows = product(global_shape.begin(), global_shape.begin() + dim) *
                    product(global_shape.begin() + dim + 1, global_shape.end());
  return (chunk - length) * rows;
}

at::Tensor ShardedTensor::full_tensor() const {
  if (!group || group->size() == 1) return local.detach().clone();
  auto padded_shape = layout.local_shape();
  padded_shape[static_cast<size_t>(layout.dim)] = layout.chunk;
  // Shards in host memory travel by the group's device.
  const auto padded = at::zeros(padded_shape, at::TensorOptions(group->device()).dtype(local.dtype()));
  padded.narrow(layout.dim, 0, layout.length).copy_(local.detach());
  const auto gathered = at::empty({group->size() * padded.numel()}, padded.options());
  group->all_gather(gathered, padded.view(-1), CallSite{"", false, Phase::state_dict})->wait();

  auto shape = padded_shape;
  shape.insert(shape.begin(), group->size());
  const auto by_rank = gathered.view(shape);
  std::vector<at::Tensor> parts;
  for (int64_t r = 0; r < group->size(); ++r) parts.push_back(by_rank.select(0, r));
  const auto size = layout.global_shape[static_cast<size_t>(layout.dim)];
  return at::cat(parts, layout.dim).narrow(layout.dim, 0, size).contiguous().to(local.device());
}

ShardedTensor unsharded(const at::Tensor& tensor) {
  const auto rows = tensor.dim() > 0 ? tensor.size(0) : 0;
  return {tensor, {tensor.sizes().vec(), 0, 0, rows, rows}, nullptr};
}

}  // namespace fsdp
