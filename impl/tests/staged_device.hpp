#pragma once
// The device on which staged_test.cpp runs: each program has its own.
#include <c10/core/Device.h>

namespace fsdp::testing {

/// Without touching the device's driver, which would not survive the fork of a rank.
bool has_staged_device();
/// Of this rank, and current from now on.
c10::Device staged_device();

}  // namespace fsdp::testing
