#include <c10/core/impl/VirtualGuardImpl.h>

#include <cctype>
#include <filesystem>
#include <string>
#include <system_error>

#include "fsdp/comm/nccl.hpp"
#include "tests/staged_device.hpp"

namespace fsdp::testing {

// A container may have any one of a machine's GPUs.
bool has_staged_device() {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("nvidia") && name.size() > 6 &&
        std::isdigit(static_cast<unsigned char>(name[6])) != 0)
      return has_nccl();
  }
  return false;
}

// All ranks share the first one.
c10::Device staged_device() {
  const c10::Device device(c10::DeviceType::CUDA, 0);
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return device;
}

}  // namespace fsdp::testing
