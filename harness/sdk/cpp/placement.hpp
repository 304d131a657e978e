// Where what a rank holds lies in the global tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp_cts::sdk {

// `length` elements at flat row-major offset `offset` of the global tensor.
struct Extent {
  std::int64_t offset = 0, length = 0;
};

// The local tensor's elements, in order, are the extents one after the other; then `padding` more elements
// that belong to nothing.
struct Placement {
  std::vector<std::int64_t> global_shape;
  bool sharded = false;
  std::vector<Extent> extents;  // empty: this rank holds nothing
  std::int64_t padding = 0;

  std::int64_t global_numel() const;
};

Placement whole(std::vector<std::int64_t> shape);  // not sharded
Placement flat(std::vector<std::int64_t> global_shape, std::int64_t offset,
               std::int64_t length);  // one stretch
// Rows [first, first + count) along `dim`: one extent for dim 0, several otherwise.
Placement slice(std::vector<std::int64_t> global_shape, std::int64_t dim, std::int64_t first,
                std::int64_t count);

// One item of an observation: PROTOCOL.md §5 `items`.
struct Exposed {
  std::string name;
  at::Tensor value;  // undefined: an absent gradient
  Placement placement;
  bool requires_grad = false;
  at::ScalarType dtype = at::ScalarType::Float;  // of an undefined value: what it would have
};

}  // namespace fsdp_cts::sdk
