#include "harness/sim/streams.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include "harness/sim/memory.hpp"
#include "harness/sim/scopes.hpp"
#include "harness/sim/virtual_time.hpp"

namespace fsdp_cts::sim {
namespace {

// As many as a device of CUDA's has of one priority, so that what shares a stream there shares one here; all
// priorities are one.
constexpr std::size_t streams_in_pool = 32;

struct StreamsOfDevice {
  Timeline default_stream = 0;
  std::vector<Timeline> pool;
  std::size_t next = 0;
};

// A stream's id is 0 for the default one, else its timeline.
class Streams {
 public:
  static Streams& instance() {
    static auto* const streams = new Streams;
    return *streams;
  }

  Timeline default_stream(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    Timeline& made = devices_.at(static_cast<std::size_t>(device)).default_stream;
    if (made == 0) made = Checker::instance().add_stream("default stream of sim:" + std::to_string(device));
    return made;
  }

  std::vector<Timeline> all_of(c10::DeviceIndex device) {
    std::vector<Timeline> all{default_stream(device)};
    const std::lock_guard lock(mutex_);
    const std::vector<Timeline>& pool = devices_.at(static_cast<std::size_t>(device)).pool;
    all.insert(all.end(), pool.begin(), pool.end());
    return all;
  }

  c10::Stream from_pool(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    StreamsOfDevice& streams = devices_.at(static_cast<std::size_t>(device));
    if (streams.pool.size() < streams_in_pool) {
      streams.pool.push_back(Checker::instance().add_stream(
          "stream " + std::to_string(streams.pool.size() + 1) + " of sim:" + std::to_string(device)));
    }
    const Timeline timeline = streams.pool[streams.next % streams_in_pool];
    ++streams.next;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(device_type, device),
                       static_cast<c10::StreamId>(timeline));
  }

 private:
  std::mutex mutex_;
  std::array<StreamsOfDevice, max_devices> devices_;
};

thread_local c10::DeviceIndex this_device = 0;
thread_local std::array<c10::StreamId, max_devices> this_stream{};

struct EventState {
  Clock clock;
  std::chrono::steady_clock::time_point at;
};

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return device_type; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {device_type, exchange_device(device.index())};
  }
  c10::Device getDevice() const override { return {device_type, current_device()}; }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < device_count()) this_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device device) const override { return current_stream(index_of(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(device_type, index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return new_stream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return new_stream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    check_device(stream.device_index());
    auto& id = this_stream.at(static_cast<std::size_t>(stream.device_index()));
    const c10::Stream before(c10::Stream::UNSAFE, stream.device(), id);
    id = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(timeline_of(stream)));
  }
  bool queryStream(const c10::Stream& stream) const override {
    // Work is done when it is launched; that the host has seen it orders. It has not waited for it.
    Checker::instance().wait(host_timeline, Checker::instance().record(timeline_of(stream)));
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Checker::instance().host_waits_for(timeline_of(stream), "synchronize a stream", scope());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    const c10::DeviceIndex device = index < 0 ? current_device() : index;
    check_device(device);
    Checker::instance().host_waits_for(Streams::instance().all_of(device), "synchronize the device", scope());
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new EventState;
    *static_cast<EventState*>(*event) = {Checker::instance().record(timeline_of(stream)),
                                         std::chrono::steady_clock::now()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr)
      Checker::instance().wait(timeline_of(stream), static_cast<EventState*>(event)->clock);
  }
  bool queryEvent(void* event) const override {
    if (event != nullptr) Checker::instance().wait(host_timeline, static_cast<EventState*>(event)->clock);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    Checker::instance().host_waits(static_cast<EventState*>(event)->clock, "synchronize an event", scope());
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<EventState*>(event);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(first != nullptr && second != nullptr,
                "elapsed_time needs two events that have been recorded");
    const auto* const begin = static_cast<EventState*>(first);
    const auto* const end = static_cast<EventState*>(second);
    if (chosen_machine() != nullptr) return static_cast<double>(end->clock.time - begin->clock.time) / 1e6;
    const auto between = end->at - begin->at;
    return std::chrono::duration<double, std::milli>(between).count();
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_allocator().recordStream(data, stream);
  }

 private:
  static c10::Stream new_stream(c10::Device device) {
    const c10::DeviceIndex index = index_of(device);
    check_device(index);
    return Streams::instance().from_pool(index);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

c10::DeviceIndex device_count() {
  static const auto count = [] {
    const char* const asked = std::getenv("FSDP_SIM_DEVICES");
    const long number = asked == nullptr ? 8 : std::strtol(asked, nullptr, 10);
    return static_cast<c10::DeviceIndex>(number < 1 ? 1 : number > max_devices ? max_devices : number);
  }();
  return count;
}

void check_device(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < device_count(),
              "sim error: invalid device ordinal: there is no sim:", static_cast<int>(device), ", there are ",
              static_cast<int>(device_count()), " devices (FSDP_SIM_DEVICES)");
}

c10::DeviceIndex current_device() {
  return this_device;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const c10::DeviceIndex before = this_device;
  if (device < 0) return before;
  check_device(device);
  this_device = device;
  return before;
}

c10::Stream current_stream(c10::DeviceIndex device) {
  check_device(device);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(device_type, device),
                     this_stream.at(static_cast<std::size_t>(device)));
}

Timeline timeline_of(c10::Stream stream) {
  if (stream.id() != 0) return static_cast<Timeline>(stream.id());
  return Streams::instance().default_stream(stream.device_index());
}

void name_stream(c10::Stream stream, std::string name) {
  Checker::instance().name_stream(timeline_of(stream), std::move(name));
}

}  // namespace fsdp_cts::sim
