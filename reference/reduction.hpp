// Adding over ranks, with the rounding of each addition stated.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace fsdp_cts::reference {

// rank: ((x0 + x1) + x2) + …
// ring: Gloo's all-reduce. The buffer is cut into segments; in a segment whose ring chunk is c the sum is
//   x[c] + (x[c+1] + ( … + (x[c+N-2] + x[c+N-1]))), indices mod N.
//   segments = roundUp(max(ceil(bytes / 1 MiB), 2N), N), segment bytes = roundUp(ceil(bytes / segments),
//   element size), and chunk c is the c-th run of segments / N consecutive segments.
enum class Order { rank, ring };
Order order_from_name(const std::string& name);  // throws std::invalid_argument

// One 1-D buffer per rank of the group, equal in length and dtype. Every single addition rounds to that
// dtype.
at::Tensor sum_over_ranks(const std::vector<at::Tensor>& buffers, Order order);

// Elements per ring chunk; the last chunks can be short or empty.
std::int64_t ring_chunk_numel(std::int64_t numel, std::int64_t element_size, std::int64_t ranks);

// The part of a divisor that is divided away before the sum, to keep fp16 in range: start at 1 and double
// while it divides `divisor` and divisor / p > p. 1 -> 1, 2 -> 2, 3 -> 2, 4 -> 2, 6 -> 4, 8 -> 4, 16 -> 4, 32
// -> 8.
double predivide_factor(double divisor);

// In place.
void divide(at::Tensor& tensor, double factor);

}  // namespace fsdp_cts::reference
