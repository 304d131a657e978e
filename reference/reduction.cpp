#include "reference/reduction.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace fsdp_cts::reference {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

at::Tensor in_rank_order(const std::vector<at::Tensor>& buffers) {
  at::Tensor total = buffers.front().clone();
  for (std::size_t rank = 1; rank < buffers.size(); ++rank) total.add_(buffers[rank]);
  return total;
}

at::Tensor in_ring_order(const std::vector<at::Tensor>& buffers) {
  const auto ranks = static_cast<std::int64_t>(buffers.size());
  at::Tensor total = at::empty_like(buffers.front());
  const std::int64_t numel = total.numel();
  const std::int64_t chunk = ring_chunk_numel(numel, static_cast<std::int64_t>(total.element_size()), ranks);
  for (std::int64_t c = 0; c * chunk < numel; ++c) {
    const std::int64_t length = std::min(chunk, numel - c * chunk);
    const auto part = [&](std::int64_t rank) {
      return buffers[static_cast<std::size_t>(rank % ranks)].narrow(0, c * chunk, length);
    };
    at::Tensor sum = part(c + ranks - 1);
    for (std::int64_t back = ranks - 2; back >= 0; --back) sum = part(c + back) + sum;
    total.narrow(0, c * chunk, length).copy_(sum);
  }
  return total;
}

}  // namespace

Order order_from_name(const std::string& name) {
  if (name == "rank") return Order::rank;
  if (name == "ring") return Order::ring;
  throw std::invalid_argument("no reduction order is called \"" + name + "\"; there are rank and ring");
}

std::int64_t ring_chunk_numel(std::int64_t numel, std::int64_t element_size, std::int64_t ranks) {
  constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
  const std::int64_t bytes = numel * element_size;
  const std::int64_t segments = round_up(std::max(ceil_div(bytes, kMebibyte), 2 * ranks), ranks);
  const std::int64_t segment_bytes = round_up(ceil_div(bytes, segments), element_size);
  return std::max<std::int64_t>(segment_bytes / element_size * (segments / ranks), 1);
}

at::Tensor sum_over_ranks(const std::vector<at::Tensor>& buffers, Order order) {
  // Two have no order: addition commutes.
  return order == Order::ring && buffers.size() > 2 ? in_ring_order(buffers) : in_rank_order(buffers);
}

double predivide_factor(double divisor) {
  double factor = 1;
  while (std::fmod(divisor, factor) == 0 && divisor / factor > factor) factor *= 2;
  return factor;
}

void divide(at::Tensor& tensor, double factor) {
  if (factor != 1) tensor.div_(factor);  // one that a user gives may be less
}

}  // namespace fsdp_cts::reference
