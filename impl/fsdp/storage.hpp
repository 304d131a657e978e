#pragma once
// Memory under tensors that outlive it. An unsharded parameter keeps its identity while its memory comes and
// goes.
#include <ATen/core/Tensor.h>

namespace fsdp {

/// A tensor over `base`'s storage, contiguous, from element `offset` on (in elements of `base`): no autograd
/// view, with a version counter of its own. The storage may be empty at the time.
at::Tensor alias(const at::Tensor& base, int64_t offset, at::IntArrayRef sizes);

/// Gives the storage of `tensor` its full size, uninitialised; keeps contents if it has it already.
void alloc_storage(const at::Tensor& tensor);
void free_storage(const at::Tensor& tensor);

/// Whether both tensors lie in the same storage at the same address.
bool same_data(const at::Tensor& a, const at::Tensor& b);

}  // namespace fsdp
