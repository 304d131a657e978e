#include "base/storage.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace fsdp {
namespace {

void resize(c10::StorageImpl& storage, size_t nbytes) {
  if (storage.nbytes() == nbytes) return;
  storage.set_data_ptr_noswap(storage.allocator()->allocate(nbytes));
  storage.set_nbytes(nbytes);
}

/// Keeps freed blocks for the next request of the same size. What it holds, used or not, is never more than
/// was once used at the same time.
class KeptMemory final : public c10::Allocator {
 public:
  /// Never destroyed: blocks may outlive everything else.
  static KeptMemory& instance() {
    static auto* memory = new KeptMemory;
    return *memory;
  }

  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes < worth_keeping) return c10::GetCPUAllocator()->allocate(nbytes);
    auto block = std::make_unique<Block>(Block{nbytes, take(nbytes)});
    auto* data = block->memory.get();
    return {data, block.release(), &give_back, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  UnshardedMemory size() {
    const std::lock_guard lock(mutex_);
    return {used_, kept_bytes_};
  }

  void release() {
    const std::lock_guard lock(mutex_);
    kept_.clear();
    kept_bytes_ = 0;
    most_used_ = used_;
  }

 private:
  static constexpr size_t worth_keeping = size_t{1} << 16;  // smaller blocks stay in the heap anyway
  struct Block {
    size_t nbytes;
    c10::DataPtr memory;
  };

  c10::DataPtr take(size_t nbytes) {
    const std::lock_guard lock(mutex_);
    const auto same = std::find_if(kept_.rbegin(), kept_.rend(),
                                   [nbytes](const Block& block) { return block.nbytes == nbytes; });
    if (same != kept_.rend()) {
      auto memory = std::move(same->memory);
      kept_bytes_ -= nbytes;
      kept_.erase(std::next(same).base());
      note_use(nbytes);
      return memory;
    }
    drop_excess_for(nbytes);
    auto memory = c10::GetCPUAllocator()->allocate(nbytes);  // may throw: counted once it is there
    note_use(nbytes);
    return memory;
  }

  static void give_back(void* context) {
    std::unique_ptr<Block> block(static_cast<Block*>(context));
    auto& self = instance();
    const std::lock_guard lock(self.mutex_);
    self.used_ -= block->nbytes;
    self.kept_bytes_ += block->nbytes;
    self.kept_.push_back(std::move(*block));
    self.drop_excess_for(0);
  }

  void note_use(size_t nbytes) {
    used_ += nbytes;
    most_used_ = std::max(most_used_, used_);
  }

  /// So that with `nbytes` more in use there is no more memory than was once used at the same time.
  void drop_excess_for(size_t nbytes) {
    while (!kept_.empty() && used_ + nbytes + kept_bytes_ > std::max(most_used_, used_ + nbytes)) {
      kept_bytes_ -= kept_.front().nbytes;
      kept_.pop_front();
    }
  }

  std::mutex mutex_;
  std::deque<Block> kept_;  // the oldest first
  size_t used_ = 0, kept_bytes_ = 0, most_used_ = 0;
};

}  // namespace

at::Tensor empty_unsharded(int64_t numel, at::TensorOptions options) {
  if (options.device() != at::kCPU) return at::empty({numel}, options);
  auto& memory = KeptMemory::instance();
  const auto dtype = options.dtype();
  const auto nbytes = static_cast<size_t>(numel) * dtype.itemsize();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                       memory.allocate(nbytes), &memory, /*resizable=*/true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({numel});
  return tensor;
}

UnshardedMemory unsharded_memory() {
  return KeptMemory::instance().size();
}

void release_kept_memory() {
  KeptMemory::instance().release();
}

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

void replace_data(const at::Tensor& tensor, const at::Tensor& data) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

bool same_data(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.storage_offset() == b.storage_offset() && a.dtype() == b.dtype();
}

}  // namespace fsdp
