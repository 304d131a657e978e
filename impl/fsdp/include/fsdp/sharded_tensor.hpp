#pragma once
// What is known about a parameter and this rank's part of it. There is no DTensor in C++: this is its place.
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// Rows `begin` to `end` of a dimension; empty where both are equal.
struct Rows {
  int64_t begin = 0;
  int64_t end = 0;  ///< exclusive
};

/// How a dimension of `size` rows is cut over `ranks`, as torch.chunk cuts: pieces of ceil(size / ranks)
/// rows, of which the last ones may be short or empty.
int64_t chunk_size(int64_t size, int64_t ranks);  ///< rows of every rank's piece, padding included
Rows chunk_rows(int64_t size, int64_t ranks, int64_t rank);

/// `length` elements at flat row-major offset `offset` of the global tensor.
struct ShardPiece {
  int64_t offset;
  int64_t length;
};

struct ShardLayout {
  std::vector<int64_t> global_shape;
  int64_t dim = 0;     ///< sharded dimension
  int64_t start = 0;   ///< first own index in that dimension
  int64_t length = 0;  ///< own indices in that dimension
  int64_t chunk = 0;   ///< own indices with padding

  std::vector<int64_t> local_shape() const;
  /// The local tensor's elements in row-major order, cut where they are not contiguous in the global tensor.
  std::vector<ShardPiece> pieces() const;
  /// Elements of zero padding that this rank keeps behind its own.
  int64_t padding() const;
};

/// A local tensor with its place in the global one.
struct ShardedTensor {
  at::Tensor local;
  ShardLayout layout;
  std::shared_ptr<Communicator> group;  ///< shard group

  /// The whole tensor, on every rank. Collective over `group`.
  at::Tensor full_tensor() const;
};

/// A tensor that every rank has whole: it belongs to no group.
ShardedTensor unsharded(const at::Tensor& tensor);

}  // namespace fsdp
