#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include "harness/sim/tests/finding_text.hpp"

namespace fsdp_cts::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr c10::DeviceIndex limited = 3;  // of these tests alone
constexpr std::size_t mebibyte = std::size_t{1} << 20;

at::Tensor bytes(std::size_t count, c10::Device device = device_zero) {
  return at::empty({static_cast<std::int64_t>(count)}, at::TensorOptions(at::kByte).device(device));
}

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    guard().synchronizeDevice(0);
    drain_findings();
  }
  void side_uses(at::Tensor& tensor) {
    c10::Event ready(device_type);
    ready.record(main_);
    ready.block(side_);
    const c10::StreamGuard current(side_);
    tensor.fill_(1);
  }
  void main_waits_for_side() {
    c10::Event event(device_type);
    event.record(side_);
    event.block(main_);
  }
  static auto stats(c10::DeviceIndex device) {
    return c10::getDeviceAllocator(device_type)->getDeviceStats(device).allocated_bytes[0];
  }

  c10::Stream main_ = guard().getStream(device_zero);
  c10::Stream side_ = guard().getNewStream(device_zero);
};

TEST_F(Memory, FreedWhileAnotherStreamUsesIt) {
  at::Tensor x = bytes(1024);
  side_uses(x);
  x.reset();
  bytes(1024).zero_();
  EXPECT_THAT(found(), ElementsAre("use_after_free: aten::fill_ then aten::zero_"));
}

TEST_F(Memory, FreedAndUsedAgainAtAnotherSize) {
  at::Tensor x = bytes(4096);
  side_uses(x);
  x.reset();
  bytes(512).zero_();
  const auto findings = drain_findings();
  ASSERT_EQ(findings.size(), 1);
  EXPECT_THAT(findings[0].missing, HasSubstr("record_stream(stream "));
}

TEST_F(Memory, FreedAfterAWait) {
  at::Tensor x = bytes(1024);
  side_uses(x);
  main_waits_for_side();
  x.reset();
  bytes(1024).zero_();
  EXPECT_THAT(found(), IsEmpty());
}

// The memory is handed out by the host, but used by the stream: a wait between the two is early enough.
TEST_F(Memory, FreedBeforeAWait) {
  at::Tensor x = bytes(1024);
  side_uses(x);
  x.reset();
  main_waits_for_side();
  bytes(1024).zero_();
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Memory, FreedWithRecordStream) {
  at::Tensor x = bytes(1024);
  side_uses(x);
  x.record_stream(side_);
  x.reset();
  bytes(1024).zero_();
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Memory, RecordStreamOfAnotherStreamProtectsNothing) {
  at::Tensor x = bytes(1024);
  side_uses(x);
  x.record_stream(guard().getNewStream(device_zero));
  x.reset();
  bytes(1024).zero_();
  EXPECT_THAT(found(), ElementsAre("use_after_free: aten::fill_ then aten::zero_"));
}

TEST_F(Memory, PoolsOfStreamsAndOfLargeBuffersAreOthers) {
  at::Tensor x = bytes(1024);
  side_uses(x);
  x.reset();
  bytes(2 * mebibyte).zero_();
  {
    const c10::StreamGuard current(guard().getNewStream(device_zero));
    bytes(1024).zero_();
  }
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Memory, AStorageThatATensorLeavesIsFreed) {
  at::Tensor x = bytes(1024);
  side_uses(x);
  x.set_();
  bytes(1024).zero_();
  EXPECT_THAT(found(), ElementsAre("use_after_free: aten::fill_ then aten::zero_"));
}

TEST_F(Memory, StatisticsAreExact) {
  const auto before = stats(0);
  c10::getDeviceAllocator(device_type)->resetPeakStats(0);
  {
    at::Tensor x = bytes(1000);
    at::Tensor y = bytes(3000);
    EXPECT_EQ(stats(0).current - before.current, 1024 + 3072);
    y.reset();
    at::Tensor z = bytes(512);
    EXPECT_EQ(stats(0).current - before.current, 1024 + 512);
  }
  EXPECT_EQ(stats(0).current, before.current);
  EXPECT_EQ(stats(0).peak - before.current, 1024 + 3072);
}

TEST_F(Memory, LimitIsKept) {
  const c10::Device device(device_type, limited);
  set_memory_limit(limited, 4 * mebibyte);
  at::Tensor x = bytes(3 * mebibyte, device);
  EXPECT_THAT([&] { bytes(2 * mebibyte, device); },
              ::testing::ThrowsMessage<c10::OutOfMemoryError>(HasSubstr(
                  "sim out of memory. Tried to allocate 2.00 MiB. sim:3 has a total capacity of 4.00 MiB of "
                  "which 1.00 MiB is free")));
  x.reset();
  EXPECT_NO_THROW(bytes(4 * mebibyte, device));
}

TEST_F(Memory, LimitCountsWhatRecordStreamHoldsUntilItIsWaitedFor) {
  const c10::Device device(device_type, limited);
  set_memory_limit(limited, 4 * mebibyte);
  c10::getDeviceAllocator(device_type)->resetPeakStats(limited);
  const c10::Stream side = guard().getNewStream(device);
  at::Tensor x = bytes(3 * mebibyte, device);
  guard().synchronizeDevice(limited);
  {
    const c10::StreamGuard current(side);
    x.zero_();
  }
  x.record_stream(side);
  x.reset();
  const auto all = c10::getDeviceAllocator(device_type)->getDeviceStats(limited);
  EXPECT_EQ(all.allocated_bytes[0].current, 0);
  EXPECT_EQ(all.active_bytes[0].current, static_cast<std::int64_t>(3 * mebibyte));
  EXPECT_NO_THROW(bytes(4 * mebibyte, device));
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Memory, LimitBelowWhatIsInUse) {
  const at::Tensor x = bytes(mebibyte, c10::Device(device_type, limited));
  EXPECT_THAT([] { set_memory_limit(limited, 1000); },
              ::testing::ThrowsMessage<c10::Error>(HasSubstr("sim:3 cannot be limited to 1000 bytes")));
}

}  // namespace
}  // namespace fsdp_cts::sim
