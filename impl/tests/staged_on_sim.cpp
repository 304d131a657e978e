#include <c10/core/impl/VirtualGuardImpl.h>

#include "harness/sim/sim.hpp"
#include "tests/staged_device.hpp"

namespace fsdp::testing {

bool has_staged_device() {
  return true;
}

c10::Device staged_device() {
  static const bool registered = (fsdp_cts::sim::register_device(), true);
  static_cast<void>(registered);
  return {fsdp_cts::sim::device_type, 0};
}

}  // namespace fsdp::testing
