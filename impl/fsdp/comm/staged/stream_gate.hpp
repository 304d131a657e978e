#pragma once
// A stream that stands still until the host lets it go on. For staged_communicator.cpp.
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>

namespace fsdp {

/// Numbers that only grow, from 1: a stream waits until the gate is open up to a number. CUDA's waits by itself; on other
/// accelerators the thread that puts something on it does.
class StreamGate {
 public:
  /// Throws RuntimeError where CUDA's driver is not there or too old.
  explicit StreamGate(at::Device device);

  /// What is put on the current stream from now on comes after open(number) or a later one.
  void block_current(uint32_t number) const;
  /// By any thread, with growing numbers. What the host has written before is there for the stream.
  void open(uint32_t number);

 private:
  at::Device device_;
  uint32_t* opened_;  // in pinned memory, which the device reads
};

}  // namespace fsdp
