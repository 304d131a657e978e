#pragma once
// Streams of an accelerator beside the one that computes, and order between them. By c10's device-generic guards:
// CUDA and every other accelerator are one code. A CPU does one thing after the other, so there everything here is
// empty and costs nothing.
//
// Memory belongs to the stream it was allocated on, and may be handed out again there as soon as the last tensor
// over it is gone (PyTorch, Tensor.record_stream). Whoever uses it on another stream keeps the tensor until the
// owner's stream is known to come after that use.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <memory>
#include <optional>
#include <utility>

namespace fsdp {

/// What had been put on a stream by some time.
class StreamEvent {
 public:
  StreamEvent() = default;  ///< nothing: waiting for it is no wait
  /// That somebody else has recorded on `device`.
  StreamEvent(std::shared_ptr<c10::Event> event, at::Device device)
      : event_(std::move(event)), device_(device) {}
  /// All that is on the device's current stream by now.
  static StreamEvent record(at::Device device);

  /// What is put on the current stream from now on comes after it.
  void block_current() const;
  /// The host waits.
  void synchronize() const;

 private:
  friend class SideStream;
  std::shared_ptr<c10::Event> event_;
  at::Device device_ = at::kCPU;
};

class SideStream {
 public:
  SideStream() = default;  ///< none: what is put on it goes to the current stream
  /// A stream from the device's pool; none on a CPU. `name`: for profilers, see fsdp/streams.hpp.
  SideStream(at::Device device, const char* name);

  explicit operator bool() const { return stream_.has_value(); }
  /// What is put on the device while the result lives goes here.
  [[nodiscard]] c10::OptionalStreamGuard use() const { return c10::OptionalStreamGuard(stream_); }
  /// What is put here from now on comes after all that is on the device's current stream by now.
  void wait_current() const;
  void wait_event(const StreamEvent& event) const;
  /// What is put on the current stream from now on comes after all that is here by now.
  void block_current() const;

 private:
  std::optional<c10::Stream> stream_;
};

/// The memory of `tensor`, which belongs to another stream than the current one, is not handed out again before all that
/// is on the current stream when it is freed is done. Nothing on a CPU.
void used_on_current(const at::Tensor& tensor);

}  // namespace fsdp
