// Several devices in one process: each has its memory, its streams and its current stream.
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>

#include "harness/sim/tests/two_streams.hpp"

namespace fsdp_cts::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const c10::Device device_one(device_type, 1);

std::int64_t allocated(const c10::Device& device) {
  return c10::getDeviceAllocator(device_type)->getDeviceStats(device.index()).allocated_bytes[0].current;
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

class Devices : public TwoStreams {
 protected:
  // Nothing of an earlier test is unfinished, nor how these were made.
  void SetUp() override {
    for (const c10::DeviceIndex device : {0, 1}) guard().synchronizeDevice(device);
    drain_findings();
  }

  at::Tensor x_ = at::ones({64}, device_zero);
  at::Tensor y_ = at::ones({64}, device_one);
};

TEST_F(Devices, AnOperatorRunsOnTheDeviceOfItsTensors) {
  const at::Tensor sum = y_ + 1;
  EXPECT_EQ(sum.device(), device_one);
  EXPECT_TRUE(sum.cpu().equal(at::ones({64}) + 1));
  EXPECT_EQ(guard().getDevice(), device_zero);
}

TEST_F(Devices, EachHasItsMemory) {
  const std::int64_t zero = allocated(device_zero), one = allocated(device_one);
  const at::Tensor made = at::empty({1024}, at::TensorOptions(device_one).dtype(at::kFloat));
  EXPECT_EQ(allocated(device_zero), zero);
  EXPECT_EQ(allocated(device_one), one + 4096);
  EXPECT_EQ(memory_held(1).now, memory_held(1).peak);
}

TEST_F(Devices, EachHasItsStreams) {
  const c10::Stream side = guard().getNewStream(device_one);
  EXPECT_EQ(side.device(), device_one);
  const c10::Stream before = guard().exchangeStream(side);
  EXPECT_EQ(guard().getStream(device_zero), main_);
  EXPECT_EQ(guard().getStream(device_one), side);
  y_.add_(1);
  guard().exchangeStream(before);
  y_.add_(1);
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::add then aten::add"));
}

TEST_F(Devices, ACopyBetweenTwoOrdersTheirStreams) {
  x_.add_(1);
  y_.copy_(x_);
  y_.add_(1);
  x_.add_(1);  // read before on the same stream
  EXPECT_TRUE(y_.cpu().equal(at::ones({64}) + 2));
  EXPECT_EQ(x_.to(device_one).device(), device_one);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Devices, ACopyBetweenTwoOrdersNoOtherStream) {
  on(side_, [&] { x_.add_(1); });
  y_.copy_(x_);
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::add then copy from device to device"));
}

TEST_F(Devices, AnEventOfOneOrdersAStreamOfTheOther) {
  on(side_, [&] { x_.add_(1); });
  c10::Event event(device_type);
  event.record(side_);
  event.block(main_);
  event.block(guard().getStream(device_one));
  y_.copy_(x_);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Devices, TheHostWaitsForOneAlone) {
  const at::Tensor pinned = at::ones({64}).pin_memory();
  pinned.copy_(y_, true);
  guard().synchronizeDevice(0);
  pinned.sum();
  EXPECT_THAT(found(), ElementsAre("host_read_unfinished: copy from device to host then aten::sum"));
  guard().synchronizeDevice(1);
  pinned.sum();
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Devices, TensorsOfTwoDoNotMix) {
  EXPECT_THAT(message_of([&] { x_.add(y_); }),
              HasSubstr("Expected all tensors to be on the same device, but found at least two devices, "
                        "sim:0 and sim:1!"));
}

TEST_F(Devices, ThereIsNoOther) {
  const c10::Device none(device_type, static_cast<c10::DeviceIndex>(guard().deviceCount()));
  const auto refused = HasSubstr("invalid device ordinal");
  EXPECT_THAT(message_of([&] { at::empty({1}, at::TensorOptions(none)); }), refused);
  EXPECT_THAT(message_of([&] { x_.to(none); }), refused);
  EXPECT_THAT(message_of([&] { guard().setDevice(none); }), refused);
  EXPECT_THAT(message_of([&] { guard().getNewStream(none); }), refused);
  EXPECT_THAT(message_of([&] { set_memory_limit(none.index(), 1 << 20); }), refused);
  EXPECT_EQ(guard().getDevice(), device_zero);
}

TEST_F(Devices, TheHostWaitsAndIsCounted) {
  drain_host_waits();
  x_.add_(1);
  guard().synchronizeStream(main_);
  guard().synchronizeStream(main_);  // has been waited for
  y_.sum().item();
  guard().synchronizeDevice(0);  // has been, too
  {
    const Unobserved unobserved;
    x_.add_(1);
    x_.sum().item();
  }
  std::vector<std::string> waits;
  for (const HostWait& wait : drain_host_waits())
    waits.push_back(wait.operation + " " + std::to_string(wait.times));
  EXPECT_THAT(waits, ElementsAre("synchronize a stream 1", "aten::_local_scalar_dense 1"));
  EXPECT_THAT(drain_host_waits(), IsEmpty());
}

}  // namespace
}  // namespace fsdp_cts::sim
