#include "harness/sim/memory.hpp"

#include <ATen/Context.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <utility>

#include "harness/sim/scopes.hpp"
#include "harness/sim/streams.hpp"
#include "harness/sim/virtual_time.hpp"

namespace fsdp_cts::sim {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr std::size_t capacity_without_limit = std::size_t{80} << 30;
constexpr std::size_t granularity = 512;  // of allocations, as CUDA's caching allocator rounds

std::size_t rounded(std::size_t bytes) {
  return (bytes + granularity - 1) / granularity * granularity;
}

// An allocation and the view of it that CPU kernels get.
struct Block : Allocation {
  c10::Storage for_cpu;
};

void free_device_block(void* context);
void free_pinned_block(void* context);

std::unique_ptr<Block> make_block(std::size_t bytes) {
  auto block = std::make_unique<Block>();
  block->bytes = bytes;
  block->data = c10::alloc_cpu(bytes);
  return block;
}

std::string in_mebibytes(std::size_t bytes) {
  const auto hundredths = (bytes * 100 + (std::size_t{1} << 19)) >> 20;
  const auto fraction = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + "." + (fraction.size() < 2 ? "0" : "") + fraction + " MiB";
}

// One device. Bytes are rounded, as `nvidia-smi` and PyTorch's statistics count them.
struct DeviceMemory {
  struct Held {
    Clock until;
    std::size_t bytes;
  };
  std::size_t capacity = capacity_without_limit;
  std::size_t peak_since_mark = 0;
  std::size_t asked_for = 0;  // of what the program holds
  std::size_t peak_asked_for = 0;
  std::list<Held> held;  // freed, and kept back for streams that record_stream has named
  DeviceStats stats;

  std::size_t in_use() const {
    return static_cast<std::size_t>(
        stats.active_bytes[static_cast<std::size_t>(StatType::AGGREGATE)].current);
  }
};

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::DeviceIndex index = current_device();
    const c10::Device device(device_type, index);
    if (bytes == 0) return {nullptr, device};
    const std::lock_guard lock(mutex_);
    DeviceMemory& memory = devices_.at(static_cast<std::size_t>(index));
    make_room(memory, index, bytes);
    auto block = make_block(bytes);
    block->device = index;
    block->pool = timeline_of(current_stream(index));
    Checker::instance().allocated(*block);
    count_allocated(memory.stats, bytes, &Stat::increase);
    count_active(memory.stats, bytes, &Stat::increase);
    memory.peak_since_mark = std::max(memory.peak_since_mark, memory.in_use());
    memory.asked_for += bytes;
    memory.peak_asked_for = std::max(memory.peak_asked_for, memory.asked_for);
    void* const data = block->data;
    return {data, block.release(), &free_device_block, device};
  }

  void release(Block& block) {
    const std::lock_guard lock(mutex_);
    DeviceMemory& memory = devices_.at(static_cast<std::size_t>(block.device));
    Clock until = Checker::instance().freed(block);
    count_allocated(memory.stats, block.bytes, &Stat::decrease);
    memory.asked_for -= block.bytes;
    if (!block.recorded.empty() && !Checker::instance().host_knows(until))
      memory.held.push_back({std::move(until), block.bytes});
    else
      count_active(memory.stats, block.bytes, &Stat::decrease);
  }

  void set_capacity(c10::DeviceIndex device, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    DeviceMemory& memory = devices_.at(static_cast<std::size_t>(device));
    TORCH_CHECK(bytes >= memory.in_use(), "sim:", static_cast<int>(device), " cannot be limited to ", bytes,
                " bytes: ", memory.in_use(), " are in use");
    memory.capacity = bytes;
  }

  void mark() {
    const std::lock_guard lock(mutex_);
    for (DeviceMemory& memory : devices_) memory.peak_since_mark = memory.in_use();
  }
  std::vector<std::size_t> peaks() {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t> peaks;
    for (c10::DeviceIndex device = 0; device < device_count(); ++device)
      peaks.push_back(devices_.at(static_cast<std::size_t>(device)).peak_since_mark);
    return peaks;
  }

  MemoryHeld held_by_program(c10::DeviceIndex device) {
    check_device(device);
    const std::lock_guard lock(mutex_);
    DeviceMemory& memory = devices_.at(static_cast<std::size_t>(device));
    return {memory.asked_for, std::exchange(memory.peak_asked_for, memory.asked_for)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // a pointer alone names no block
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Allocation* const allocation = allocation_of(data);
    if (allocation == nullptr) return;
    const std::lock_guard lock(mutex_);
    if (const Timeline timeline = timeline_of(stream); timeline != allocation->pool)
      allocation->recorded.insert(timeline);
  }
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    check_device(device);
    const std::lock_guard lock(mutex_);
    return devices_.at(static_cast<std::size_t>(device)).stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    for_all(device, [](Stat& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    for_all(device, [](Stat& stat) { stat.reset_peak(); });
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    check_device(device);
    const std::lock_guard lock(mutex_);
    const DeviceMemory& memory = devices_.at(static_cast<std::size_t>(device));
    return {memory.capacity - memory.in_use(), memory.capacity};
  }

 private:
  using Change = void (Stat::*)(std::size_t);
  static std::array<std::size_t, 2> types_of(std::size_t bytes) {
    const StatType pool = bytes <= largest_small_allocation ? StatType::SMALL_POOL : StatType::LARGE_POOL;
    return {static_cast<std::size_t>(StatType::AGGREGATE), static_cast<std::size_t>(pool)};
  }
  // What the program holds.
  static void count_allocated(DeviceStats& stats, std::size_t bytes, Change change) {
    for (const std::size_t type : types_of(bytes)) {
      (stats.allocation[type].*change)(1);
      (stats.allocated_bytes[type].*change)(rounded(bytes));
      (stats.requested_bytes[type].*change)(bytes);
    }
  }
  // What cannot be handed out again.
  static void count_active(DeviceStats& stats, std::size_t bytes, Change change) {
    for (const std::size_t type : types_of(bytes)) {
      (stats.active[type].*change)(1);
      (stats.active_bytes[type].*change)(rounded(bytes));
      (stats.reserved_bytes[type].*change)(rounded(bytes));
    }
  }

  void make_room(DeviceMemory& memory, c10::DeviceIndex index, std::size_t bytes) {
    Checker& checker = Checker::instance();
    auto let_go_if = [&](auto condition) {
      std::erase_if(memory.held, [&](const DeviceMemory::Held& held) {
        if (!condition(held)) return false;
        count_active(memory.stats, held.bytes, &Stat::decrease);
        return true;
      });
    };
    let_go_if([&](const DeviceMemory::Held& held) { return checker.host_knows(held.until); });
    if (memory.in_use() + rounded(bytes) <= memory.capacity) return;
    ++memory.stats.num_alloc_retries;
    let_go_if([&](const DeviceMemory::Held& held) {
      checker.host_waits(held.until, "allocate", scope());
      return true;
    });
    if (memory.in_use() + rounded(bytes) <= memory.capacity) return;
    ++memory.stats.num_ooms;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "sim out of memory. Tried to allocate ", in_mebibytes(bytes),
                     ". sim:", static_cast<int>(index), " has a total capacity of ",
                     in_mebibytes(memory.capacity), " of which ",
                     in_mebibytes(memory.capacity - memory.in_use()), " is free. ",
                     in_mebibytes(memory.in_use()), " is allocated.");
  }

  void for_all(c10::DeviceIndex device, const std::function<void(Stat&)>& change) {
    check_device(device);
    const std::lock_guard lock(mutex_);
    DeviceStats& stats = devices_.at(static_cast<std::size_t>(device)).stats;
    for (StatArray* array : {&stats.allocation, &stats.active, &stats.allocated_bytes, &stats.reserved_bytes,
                             &stats.active_bytes, &stats.requested_bytes}) {
      for (Stat& stat : *array) change(stat);
    }
  }

  std::recursive_mutex mutex_;  // a finding may end a tensor
  std::array<DeviceMemory, max_devices> devices_;
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    watch_the_host();
    if (bytes == 0) return {nullptr, c10::kCPU};
    auto block = make_block(bytes);
    block->on_host = true;
    Checker::instance().allocated(*block);
    {
      const std::lock_guard lock(mutex_);
      blocks_[block->data] = bytes;
    }
    void* const data = block->data;
    return {data, block.release(), &free_pinned_block, c10::kCPU};
  }
  void release(const Block& block) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(block.data);
  }
  bool holds(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto after = blocks_.upper_bound(data);
    if (after == blocks_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return data < static_cast<const std::byte*>(begin) + bytes;
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::size_t> blocks_;
};

// Both live as long as the process: tensors are freed until its very end.
DeviceAllocator& the_device_allocator() {
  static auto* const allocator = new DeviceAllocator;
  return *allocator;
}
PinnedAllocator& the_pinned_allocator() {
  static auto* const allocator = new PinnedAllocator;
  return *allocator;
}

void free_device_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  the_device_allocator().release(*block);
  c10::free_cpu(block->data);
}

void free_pinned_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  the_pinned_allocator().release(*block);
  c10::free_cpu(block->data);
}

[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(device_type, &the_device_allocator());
  return true;
}();

Block* block_of(const c10::DataPtr& data) {
  const auto deleter = data.get_deleter();
  if (deleter != &free_device_block && deleter != &free_pinned_block) return nullptr;
  return static_cast<Block*>(data.get_context());
}

}  // namespace

c10::DeviceAllocator& device_allocator() {
  return the_device_allocator();
}
c10::Allocator& pinned_allocator() {
  return the_pinned_allocator();
}
bool is_pinned(const void* data) {
  return the_pinned_allocator().holds(data);
}

Allocation* allocation_of(const c10::DataPtr& data) {
  return block_of(data);
}

Allocation* allocation_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? block_of(tensor.storage().data_ptr()) : nullptr;
}

Extent extent_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  const std::size_t begin = static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize();
  std::size_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    last += static_cast<std::size_t>((tensor.size(i) - 1) * tensor.stride(i));
  return {begin, begin + (last + 1) * tensor.itemsize()};
}

void note(const Checker::Step& step, const at::Tensor& tensor, bool write) {
  Allocation* const allocation = allocation_of(tensor);
  if (allocation == nullptr) return;
  if (write)
    step.writes(*allocation, extent_of(tensor));
  else
    step.reads(*allocation, extent_of(tensor));
}

at::Tensor on_cpu(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  Block* const block = block_of(storage.data_ptr());
  auto view_of = [&] {
    return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
        c10::DataPtr(storage.data_ptr().get(), c10::kCPU), nullptr, false));
  };
  c10::Storage for_cpu;
  if (block == nullptr) {
    for_cpu = view_of();
  } else {
    static std::mutex making;
    const std::lock_guard lock(making);
    if (!block->for_cpu) block->for_cpu = view_of();
    for_cpu = block->for_cpu;
  }
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(for_cpu), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  if (tensor.is_conj()) made._set_conj(true);
  if (tensor.is_neg()) made._set_neg(true);
  return made;
}

void resize_storage(c10::StorageImpl& storage, std::size_t bytes) {
  const c10::DeviceIndex before = current_device();
  exchange_device(storage.device().index());
  c10::DataPtr data = the_device_allocator().allocate(bytes);
  if (const std::size_t kept = std::min(bytes, storage.nbytes()); kept > 0 && storage.data() != nullptr) {
    const auto step =
        Checker::instance().launch(timeline_of(current_stream(current_device())), "storage.resize_", scope());
    step.reads(*allocation_of(storage.data_ptr()), {0, kept});
    step.writes(*allocation_of(data), {0, kept});
    std::memcpy(data.get(), storage.data(), kept);
    if (const Machine* const machine = chosen_machine())
      spend(*machine, step, Kind::compute, duration_of(*machine, {.bytes = 2.0 * static_cast<double>(kept)}));
  }
  exchange_device(before);
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

void mark_memory() {
  the_device_allocator().mark();
}
std::vector<std::size_t> peaks_since_mark() {
  return the_device_allocator().peaks();
}

MemoryHeld memory_held(c10::DeviceIndex device) {
  return the_device_allocator().held_by_program(device);
}

void limit_memory_by_environment() {
  const char* const asked = std::getenv("FSDP_SIM_MEMORY");
  if (asked == nullptr || *asked == 0) return;
  std::size_t bytes = 0;
  const std::string_view text(asked);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  TORCH_CHECK(error == std::errc() && end == text.data() + text.size() && bytes > 0, "FSDP_SIM_MEMORY is '",
              text, "', and not a number of bytes above 0");
  static std::once_flag once;  // what the program sets later stays
  std::call_once(once, [&] {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) set_memory_limit(device, bytes);
  });
}

void name_buffer(const at::Tensor& tensor, std::string name) {
  if (Allocation* const allocation = allocation_of(tensor))
    Checker::instance().name(*allocation, std::move(name));
}

void host_access(const at::Tensor& tensor, bool write, const std::string& operation) {
  if (allocation_of(tensor) != nullptr) note(Checker::instance().on_host(operation, scope()), tensor, write);
}

void set_memory_limit(c10::DeviceIndex device, std::size_t bytes) {
  check_device(device);
  the_device_allocator().set_capacity(device, bytes);
}

}  // namespace fsdp_cts::sim
