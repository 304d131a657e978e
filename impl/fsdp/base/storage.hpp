#pragma once
// Memory under tensors that outlive it. An unsharded parameter keeps its identity while its memory comes and
// goes.
#include <ATen/core/Tensor.h>

namespace fsdp {

/// A one-dimensional tensor, uninitialised, for unsharded parameters. On the CPU its memory, once freed, is
/// kept for the next tensor of its size: pages that went back to the system would come again one fault each.
/// What is kept and what is used are together never more than was once used at the same time.
at::Tensor empty_unsharded(int64_t numel, at::TensorOptions options);
/// Bytes, in blocks of 64 KiB and more: smaller ones are not counted and not kept.
struct UnshardedMemory {
  size_t used;
  size_t kept;
};
UnshardedMemory unsharded_memory();
/// Gives what is kept to the system.
void release_kept_memory();

/// A tensor over `base`'s storage, contiguous, from element `offset` of `base` on, wherever that begins: no autograd
/// view, with a version counter of its own. The storage may be empty at the time.
at::Tensor alias(const at::Tensor& base, int64_t offset, at::IntArrayRef sizes);

/// Gives the storage of `tensor` its full size, uninitialised; keeps contents if it has it already.
void alloc_storage(const at::Tensor& tensor);
void free_storage(const at::Tensor& tensor);

/// `tensor` has the data of `data` from now on, and its sizes. Like set_data, which refuses to go from one kind of
/// device to another.
void replace_data(const at::Tensor& tensor, const at::Tensor& data);

/// Whether both tensors lie in the same storage at the same address.
bool same_data(const at::Tensor& a, const at::Tensor& b);

}  // namespace fsdp
