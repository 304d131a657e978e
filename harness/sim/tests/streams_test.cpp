// Each fault stands beside its twin that does one thing right and is not reported.
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/variable.h>

#include "harness/sim/tests/two_streams.hpp"

namespace fsdp_cts::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Streams : public TwoStreams {
 protected:
  static at::Tensor pinned(std::int64_t size) { return at::ones({size}, at::kFloat).pin_memory(); }

  at::Tensor x_ = at::ones({64}, device_zero);
  at::Tensor y_ = at::ones({64}, device_zero);
};

TEST_F(Streams, ReadAfterWrite) {
  wait(side_, main_);
  x_.add_(1);
  on(side_, [&] { y_.copy_(x_); });
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::add then aten::copy_"));
}

TEST_F(Streams, ReadAfterWriteWithAnEvent) {
  x_.add_(1);
  wait(side_, main_);
  on(side_, [&] { y_.copy_(x_); });
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Streams, ReadAfterWriteWithTheHostBetween) {
  x_.add_(1);
  guard().synchronizeStream(main_);
  on(side_, [&] { y_.copy_(x_); });
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Streams, AnEventRecordedTooEarlyOrdersNothing) {
  c10::Event event(device_type);
  event.record(main_);
  x_.add_(1);
  event.block(side_);
  on(side_, [&] { y_.copy_(x_); });
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::add then aten::copy_"));
}

TEST_F(Streams, WriteAfterRead) {
  wait(side_, main_);
  on(side_, [&] { y_.copy_(x_); });
  x_.add_(1);
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::copy_ then aten::add"));
}

TEST_F(Streams, WriteAfterReadWithAnEvent) {
  wait(side_, main_);
  on(side_, [&] { y_.copy_(x_); });
  wait(main_, side_);
  x_.add_(1);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Streams, WriteAfterWrite) {
  wait(side_, main_);
  on(side_, [&] { x_.fill_(2); });
  x_.fill_(3);
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::fill_ then aten::fill_"));
}

TEST_F(Streams, WriteAfterWriteByAThirdStreamThatKnowsBoth) {
  const c10::Stream third = guard().getNewStream(device_zero);
  wait(side_, main_);
  on(side_, [&] { x_.fill_(2); });
  wait(third, side_);
  wait(main_, third);  // what a stream has waited for is handed on
  x_.fill_(3);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Streams, TwoReadsNeedNoOrder) {
  wait(side_, main_);
  at::Tensor z = at::empty({64}, device_zero);
  wait(side_, main_);
  on(side_, [&] { y_.copy_(x_); });
  z.copy_(x_);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Streams, OtherBytesNeedNoOrder) {
  wait(side_, main_);
  on(side_, [&] { x_.narrow(0, 0, 32).fill_(2); });
  x_.narrow(0, 32, 32).fill_(3);
  EXPECT_THAT(found(), IsEmpty());
  x_.narrow(0, 31, 1).fill_(3);
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::fill_ then aten::fill_"));
}

TEST_F(Streams, AFindingNamesWhatIsNeeded) {
  name_stream(side_, "the side stream");
  name_buffer(x_, "0.weight");
  wait(side_, main_);
  x_.add_(1);
  on(side_, [&] { y_.copy_(x_); });
  const auto findings = drain_findings();
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(
      describe(findings[0]),
      "0.weight (256 bytes): 'aten::add' on default stream of sim:0 writes, then 'aten::copy_' on the side "
      "stream reads, and nothing orders the two; missing: the side stream waits, before 'aten::copy_', for "
      "an event recorded on default stream of sim:0 behind 'aten::add'");
}

TEST_F(Streams, EqualFindingsAreCounted) {
  wait(side_, main_);
  x_.add_(1);
  for (int i = 0; i < 3; ++i) on(side_, [&] { y_.copy_(x_); });
  const auto findings = drain_findings();
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].times, 3);
}

TEST_F(Streams, WhoOnlyLooksIsNoPartOfTheProgram) {
  wait(side_, main_);
  x_.add_(1);
  {
    const Unobserved looking;
    on(side_, [&] { EXPECT_EQ(x_.cpu()[0].item<float>(), 2); });
  }
  EXPECT_THAT(found(), IsEmpty());
  on(side_, [&] { y_.copy_(x_); });  // the look has ordered nothing
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::add then aten::copy_"));
}

TEST_F(Streams, HostReadsWhatIsStillCopied) {
  at::Tensor host = pinned(64);
  x_.add_(1);
  host.copy_(x_, /*non_blocking=*/true);
  EXPECT_EQ(at::add(host, 0).sum().item<float>(), 128);
  EXPECT_THAT(found(), ElementsAre("host_read_unfinished: copy from device to host then aten::add"));
}

TEST_F(Streams, HostReadsAfterItHasWaited) {
  at::Tensor host = pinned(64);
  host.copy_(x_, /*non_blocking=*/true);
  guard().synchronizeStream(main_);
  at::add(host, 0);
  at::Tensor blocking = pinned(64);
  blocking.copy_(x_);
  at::add(blocking, 0);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Streams, HostReadsPastPyTorch) {
  at::Tensor host = pinned(64);
  host.copy_(x_, /*non_blocking=*/true);
  host_access(host, false, "memcpy");
  EXPECT_THAT(found(), ElementsAre("host_read_unfinished: copy from device to host then memcpy"));
}

TEST_F(Streams, HostWritesWhatIsStillCopied) {
  at::Tensor host = pinned(64);
  x_.copy_(host, /*non_blocking=*/true);
  host.fill_(2);
  EXPECT_THAT(found(), ElementsAre("stream_race: copy from host to device then aten::fill_"));
}

TEST_F(Streams, HostWritesAfterItHasWaited) {
  at::Tensor host = pinned(64);
  x_.copy_(host, /*non_blocking=*/true);
  c10::Event event(device_type);
  event.record(main_);
  event.synchronize();
  host.fill_(2);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Streams, HostReadsShapesOfWhatIsStillCopied) {
  at::Tensor host = pinned(64);
  host.copy_(x_, /*non_blocking=*/true);
  at::Tensor other = at::empty_like(host.view({8, 8}));
  EXPECT_TRUE(host.is_pinned());
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Streams, ABlockingCopyWaitsForItsStreamAlone) {
  wait(side_, main_);
  x_.add_(1);
  on(side_, [&] { y_.cpu(); });
  on(side_, [&] { y_.copy_(x_); });
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::add then aten::copy_"));
}

TEST_F(Streams, AutogradOrdersWhatItRunsOnForwardsStreams) {
  at::Tensor weight = at::ones({8, 8}, device_zero).requires_grad_();
  at::Tensor input = at::ones({4, 8}, device_zero);
  wait(side_, main_);
  at::Tensor output;
  on(side_, [&] { output = input.matmul(weight); });
  wait(main_, side_);
  output.sum().backward();
  EXPECT_EQ(weight.grad().sum().item<float>(), 256);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(Streams, AutogradCannotOrderWhatForwardDidNot) {
  at::Tensor weight = at::ones({8, 8}, device_zero).requires_grad_();
  at::Tensor input = at::ones({4, 8}, device_zero);
  wait(side_, main_);
  at::Tensor output;
  on(side_, [&] { output = input.matmul(weight); });
  output.sum().backward();
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::mm then aten::sum"));
}

TEST_F(Streams, OfAnotherDeviceAreOthers) {
  const c10::Device second(device_type, 1);
  EXPECT_EQ(guard().getStream(second).device_index(), 1);
  EXPECT_NE(guard().getNewStream(second), guard().getNewStream(device_zero));
  const c10::DeviceGuard current(second);
  EXPECT_EQ(at::ones({2}, c10::Device(device_type)).device(), second);
}

TEST_F(Streams, ThereIsNoSuchDevice) {
  EXPECT_THAT([] { at::ones({2}, c10::Device(device_type, 15)); },
              ::testing::ThrowsMessage<c10::Error>(HasSubstr("invalid device ordinal: there is no sim:15")));
}

}  // namespace
}  // namespace fsdp_cts::sim
