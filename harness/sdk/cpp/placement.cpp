#include "harness/sdk/cpp/placement.hpp"

#include <numeric>

namespace fsdp_cts::sdk {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t first, std::size_t last) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(first),
                         shape.begin() + static_cast<std::ptrdiff_t>(last), std::int64_t{1},
                         std::multiplies<>());
}

}  // namespace

std::int64_t Placement::global_numel() const {
  return product(global_shape, 0, global_shape.size());
}

Placement whole(std::vector<std::int64_t> shape) {
  const std::int64_t numel = product(shape, 0, shape.size());
  return {std::move(shape), false, {{0, numel}}, 0};
}

Placement flat(std::vector<std::int64_t> global_shape, std::int64_t offset, std::int64_t length) {
  Placement placement{std::move(global_shape), true, {}, 0};
  if (length > 0) placement.extents.push_back({offset, length});
  return placement;
}

Placement slice(std::vector<std::int64_t> global_shape, std::int64_t dim, std::int64_t first,
                std::int64_t count) {
  const auto at = static_cast<std::size_t>(dim);
  const std::int64_t outer = product(global_shape, 0, at);
  const std::int64_t inner = product(global_shape, at + 1, global_shape.size());
  const std::int64_t stride = global_shape[at] * inner;
  Placement placement{std::move(global_shape), true, {}, 0};
  for (std::int64_t i = 0; i < outer && count * inner > 0; ++i) {
    placement.extents.push_back({i * stride + first * inner, count * inner});
  }
  return placement;
}

}  // namespace fsdp_cts::sdk
