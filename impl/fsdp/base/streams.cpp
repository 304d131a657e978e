#include "base/streams.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "fsdp/streams.hpp"

namespace fsdp {
namespace {

StreamNamer& namer() {
  static StreamNamer namer;
  return namer;
}

}  // namespace

void set_stream_namer(StreamNamer name) {
  namer() = std::move(name);
}

StreamEvent StreamEvent::record(at::Device device) {
  StreamEvent recorded;
  if (device.is_cpu()) return recorded;
  recorded.device_ = device;
  recorded.event_ = std::make_shared<c10::Event>(device.type());
  recorded.event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return recorded;
}

void StreamEvent::block_current() const {
  if (event_) event_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void StreamEvent::synchronize() const {
  if (event_) event_->synchronize();
}

SideStream::SideStream(at::Device device, const char* name) {
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  if (namer()) namer()(*stream_, name);
}

void SideStream::wait_current() const {
  if (stream_) wait_event(StreamEvent::record(stream_->device()));
}

void SideStream::wait_event(const StreamEvent& event) const {
  if (stream_ && event.event_) event.event_->block(*stream_);
}

void SideStream::block_current() const {
  if (!stream_) return;
  StreamEvent behind;
  {
    const auto here = use();
    behind = StreamEvent::record(stream_->device());
  }
  behind.block_current();
}

void used_on_current(const at::Tensor& tensor) {
  const auto device = tensor.device();
  if (device.is_cpu()) return;
  at::Tensor used = tensor;
  used.record_stream(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

}  // namespace fsdp
