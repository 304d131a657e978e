// Memory of the devices and pinned memory of the host: host memory both, known to the checker.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

#include "harness/sim/checker.hpp"

namespace fsdp_cts::sim {

c10::DeviceAllocator& device_allocator();
c10::Allocator& pinned_allocator();
bool is_pinned(const void* data);

// Null for memory that is not ours, and for none at all.
Allocation* allocation_of(const c10::DataPtr& data);
Allocation* allocation_of(const at::Tensor& tensor);

// The bytes from the first to the last element.
Extent extent_of(const at::Tensor& tensor);

// That the step reads or writes the tensor's bytes; nothing for memory that is not ours.
void note(const Checker::Step& step, const at::Tensor& tensor, bool write);

// The most that each device had in use since `mark_memory`, or since the process began.
void mark_memory();
std::vector<std::size_t> peaks_since_mark();

// FSDP_SIM_MEMORY: of every device, once. Throws c10::Error where it is no number of bytes.
void limit_memory_by_environment();

// Storage.resize_ of a device: contents are kept as far as they fit, by a copy on the current stream.
void resize_storage(c10::StorageImpl& storage, std::size_t bytes);

}  // namespace fsdp_cts::sim
