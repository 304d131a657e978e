#include "comm/staged/stream_gate.hpp"

#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <mutex>
#include <string>
#include <vector>

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

// Of CUDA's driver, which is loaded where there is a GPU: cuStreamWaitValue32(stream, address, value, flags). So no CUDA
// toolkit is needed to build this.
using WaitValue = int (*)(void*, unsigned long long, uint32_t, unsigned);
constexpr unsigned until_at_least = 0;  // CU_STREAM_WAIT_VALUE_GEQ

WaitValue driver_wait_value() {
  static const WaitValue found = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
    return driver == nullptr ? nullptr : reinterpret_cast<WaitValue>(dlsym(driver, "cuStreamWaitValue32_v2"));
  }();
  return found;
}

/// When the last opener is gone a stream may still have to look, and would wait without end for what somebody else keeps
/// there by then.
void keep_for_ever(const at::Tensor& memory) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<at::Tensor>;
  const std::lock_guard lock(mutex);
  kept.push_back(memory);
}

}  // namespace

StreamGate::StreamGate(at::Device device) : device_(device) {
  if (device.is_cuda() && driver_wait_value() == nullptr)
    throw RuntimeError(
        "Collectives that are carried by the CPU need CUDA's driver, 11.7 or newer: libcuda.so.1 is not "
        "there, or has no cuStreamWaitValue32_v2.");
  const auto memory = at::zeros({1}, at::TensorOptions(at::kInt).pinned_memory(true));
  keep_for_ever(memory);
  opened_ = static_cast<uint32_t*>(memory.mutable_data_ptr());
}

void StreamGate::open(uint32_t number) {
  const std::atomic_ref opened(*opened_);
  opened.store(number, std::memory_order_release);
  opened.notify_all();
}

void StreamGate::block_current(uint32_t number) const {
  if (!device_.is_cuda()) {
    const std::atomic_ref opened(*opened_);
    for (uint32_t seen = opened.load(std::memory_order_acquire); seen < number;
         seen = opened.load(std::memory_order_acquire))
      opened.wait(seen, std::memory_order_acquire);
    return;
  }
  const auto stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  const int error = driver_wait_value()(stream.native_handle(), reinterpret_cast<unsigned long long>(opened_),
                                        number, until_at_least);
  if (error != 0)
    throw RuntimeError("CUDA's driver refused to let a stream wait for the host: error " +
                       std::to_string(error) + ".");
}

}  // namespace fsdp
