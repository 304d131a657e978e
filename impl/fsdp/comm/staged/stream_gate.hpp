#pragma once
// A stream that stands still until the host lets it go on. For staged_communicator.cpp.
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>

namespace fsdp {

/// Numbers that only grow, from 1: a stream may wait until the host has opened the gate up to a number. CUDA only.
class StreamGate {
 public:
  /// Throws RuntimeError where CUDA's driver is not there or too old.
  explicit StreamGate(at::Device device);

  static bool offered_on(at::Device device) { return device.is_cuda(); }
  /// What is put on the current stream from now on comes after open(number) or a later one.
  void block_current(uint32_t number) const;
  /// By any thread, with growing numbers. What the host has written before is there for the stream.
  void open(uint32_t number) { std::atomic_ref(*opened_).store(number, std::memory_order_release); }

 private:
  at::Device device_;
  at::Tensor memory_;  // pinned, which the device reads
  uint32_t* opened_;
};

}  // namespace fsdp
