#include <c10/core/impl/VirtualGuardImpl.h>

#include <filesystem>

#include "fsdp/comm/nccl.hpp"
#include "tests/staged_device.hpp"

namespace fsdp::testing {

bool has_staged_device() {
  return has_nccl() && std::filesystem::exists("/dev/nvidia0");
}

// All ranks share the first one.
c10::Device staged_device() {
  const c10::Device device(c10::DeviceType::CUDA, 0);
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return device;
}

}  // namespace fsdp::testing
