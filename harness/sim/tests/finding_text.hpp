#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "harness/sim/sim.hpp"

namespace fsdp_cts::sim {

// "stream_race: aten::add_ then aten::mul_"
inline std::vector<std::string> found() {
  std::vector<std::string> texts;
  for (const Finding& finding : drain_findings())
    texts.push_back(std::string(finding_code(finding.kind)) + ": " + finding.earlier.operation + " then " +
                    finding.later.operation);
  return texts;
}

inline const c10::Device device_zero(device_type, 0);
inline const c10::impl::DeviceGuardImplInterface& guard() {
  return *c10::impl::getDeviceGuardImpl(device_type);
}

}  // namespace fsdp_cts::sim
