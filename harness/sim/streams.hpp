// Devices, streams and events, by c10's guards: `c10::Stream`, `c10::Event`, `c10::StreamGuard` and their Python
// counterparts work on them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "harness/sim/checker.hpp"

namespace fsdp_cts::sim {

inline constexpr int max_devices = 16;

// FSDP_SIM_DEVICES of the environment, from 1 to 16; else 8.
c10::DeviceIndex device_count();
// Throws c10::Error, in the words that accelerators use, unless there is such a device.
void check_device(c10::DeviceIndex device);

// Of this thread.
c10::DeviceIndex current_device();
c10::DeviceIndex exchange_device(c10::DeviceIndex device);  // throws as check_device; −1 changes nothing
c10::Stream current_stream(c10::DeviceIndex device);

Timeline timeline_of(c10::Stream stream);
inline Timeline current_timeline() {
  return timeline_of(current_stream(current_device()));
}

}  // namespace fsdp_cts::sim
