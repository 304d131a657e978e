// The default stream of a device, another one, and nothing unfinished or found before.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <functional>

#include "harness/sim/tests/finding_text.hpp"

namespace fsdp_cts::sim {

class TwoStreams : public ::testing::Test {
 protected:
  TwoStreams() {
    register_device();
    guard().synchronizeDevice(0);
    drain_findings();
  }

  void on(c10::Stream stream, const std::function<void()>& work) {
    const c10::StreamGuard current(stream);
    work();
  }
  void wait(c10::Stream waiting, c10::Stream for_stream) {
    c10::Event event(device_type);
    event.record(for_stream);
    event.block(waiting);
  }

  c10::Stream main_ = guard().getStream(device_zero);
  c10::Stream side_ = guard().getNewStream(device_zero);
};

}  // namespace fsdp_cts::sim
