// What PyTorch asks of an accelerator beside streams and memory.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>

#include <deque>

#include "harness/sim/memory.hpp"
#include "harness/sim/streams.hpp"
#include "harness/sim/virtual_time.hpp"

namespace fsdp_cts::sim {
namespace {

// Operators draw from the CPU's generator, so that a program draws the same numbers on both devices; this one
// only says that it belongs to the device.
struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(c10::DeviceIndex index) {
    device_ = c10::Device(sim::device_type, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  at::Device getDeviceFromPtr(void*) const override {
    TORCH_CHECK(false, "device sim cannot tell the device of a pointer: its memory is the host's");
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    const c10::DeviceIndex device = index < 0 ? current_device() : index;
    check_device(device);
    static const auto* const generators = [] {
      auto* const made = new std::deque<at::Generator>;
      for (c10::DeviceIndex i = 0; i < device_count(); ++i) made->push_back(at::make_generator<Generator>(i));
      return made;
    }();
    return generators->at(static_cast<std::size_t>(device));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? current_device() : index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  c10::register_privateuse1_backend("sim");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

void register_device() {
  c10::register_privateuse1_backend("sim");
  follow_environment();
  limit_memory_by_environment();
}

}  // namespace fsdp_cts::sim
