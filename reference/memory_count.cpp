#include "reference/memory_count.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace fsdp_cts::reference {
namespace {

bool counting = false;
std::atomic<std::int64_t> now = 0;
std::atomic<std::int64_t> peak = 0;

void add(std::int64_t bytes) {
  const std::int64_t sum = now += bytes;
  std::int64_t before = peak;
  while (sum > before && !peak.compare_exchange_weak(before, sum)) {
  }
}

// Kernels may free by address what they asked for, so sizes are kept beside and not in front of the memory.
std::mutex mutex;
std::unordered_map<void*, std::int64_t>& sizes() {
  static auto* const sizes =
      new std::unordered_map<void*, std::int64_t>;  // tensors are freed until the very end
  return *sizes;
}

void release(void* data) {
  if (data == nullptr) return;
  {
    const std::lock_guard lock(mutex);
    const auto size = sizes().find(data);
    now -= size->second;
    sizes().erase(size);
  }
  c10::free_cpu(data);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::kCPU};
    void* const data = c10::alloc_cpu(bytes);
    const auto counted = static_cast<std::int64_t>(bytes);
    {
      const std::lock_guard lock(mutex);
      sizes()[data] = counted;
    }
    add(counted);
    return {data, data, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

void count_memory() {
  static auto* const allocator = new CountingAllocator;  // tensors are freed until the very end
  c10::SetCPUAllocator(allocator, 1);
  counting = true;
}

MemoryOfStep::MemoryOfStep() : begin_(now) {
  peak = begin_;
}

std::optional<MemoryUse> MemoryOfStep::use() const {
  if (!counting) return std::nullopt;
  return MemoryUse{begin_, peak};
}

}  // namespace fsdp_cts::reference
