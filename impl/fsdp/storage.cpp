#include "fsdp/storage.hpp"

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <utility>

namespace fsdp {
namespace {

void resize(c10::StorageImpl& storage, size_t nbytes) {
  if (storage.nbytes() == nbytes) return;
  storage.set_data_ptr_noswap(storage.allocator()->allocate(nbytes));
  storage.set_nbytes(nbytes);
}

}  // namespace

at::Tensor alias(const at::Tensor& base, int64_t offset, at::IntArrayRef sizes) {
  auto storage = base.storage();
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), base.key_set(), base.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  impl->set_storage_offset(base.storage_offset() + offset);
  return tensor;
}

void alloc_storage(const at::Tensor& tensor) {
  resize(*tensor.storage().unsafeGetStorageImpl(), static_cast<size_t>(tensor.numel()) * tensor.itemsize());
}

void free_storage(const at::Tensor& tensor) {
  resize(*tensor.storage().unsafeGetStorageImpl(), 0);
}

bool same_data(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.storage_offset() == b.storage_offset() && a.dtype() == b.dtype();
}

}  // namespace fsdp
