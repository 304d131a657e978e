// Collectives of an accelerator that the CPU carries, on whatever device the program has: values, order, failures.
#include "fsdp/comm/staged.hpp"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/comm/shm.hpp"
#include "fsdp/errors.hpp"
#include "tests/ranks.hpp"
#include "tests/staged_device.hpp"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<Communicator> staged_over_shm(const Rendezvous& rendezvous) {
  return make_staged_communicator(make_shm_communicator(rendezvous), staged_device());
}

class Staged : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_staged_device()) GTEST_SKIP() << "needs a GPU";
  }
  static void run(int64_t world, const std::function<void(const Rank&)>& body) {
    run_ranks(staged_over_shm, world, body);
  }
};

c10::Stream side_stream() {
  const c10::impl::VirtualGuardImpl guard(staged_device().type());
  return guard.getStreamFromGlobalPool(staged_device());
}

/// Keeps the current stream busy, so that the host is far ahead of it; answers ones.
at::Tensor late_ones(int64_t numel) {
  auto big = at::full({1024, 1024}, 1.0 / 1024, staged_device());
  const int steps = staged_device().is_cuda() ? 200 : 1;  // elsewhere the host waits
  for (int i = 0; i < steps; ++i) big = big.mm(big) * 1.0;
  return big.view(-1).narrow(0, 0, 1).mul(1024).expand({numel}).contiguous();
}

TEST_F(Staged, ClosedForms) {
  run(3, [](const Rank& rank) {
    auto& group = *rank.plain;
    const auto options = at::TensorOptions(staged_device());
    const auto r = static_cast<double>(rank.rank);
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
      const auto own = (at::arange(4, options) + r).to(dtype);
      const auto gathered = at::empty({12}, options.dtype(dtype));
      group.all_gather(gathered, own, {})->wait();
      EXPECT_TRUE(at::equal(gathered.cpu(),
                            at::cat({at::arange(4), at::arange(4) + 1, at::arange(4) + 2}).to(dtype)));
      const auto sum = at::full({5}, r + 1, options).to(dtype);
      group.all_reduce(sum, {}, {})->wait();
      EXPECT_TRUE(at::equal(sum.cpu(), at::full({5}, 6.0).to(dtype)));
      const auto shard = at::empty({2}, options.dtype(dtype));
      group.reduce_scatter(shard, (at::arange(6, options) + r).to(dtype), {}, {})->wait();
      EXPECT_TRUE(at::equal(shard.cpu(), (3 * (at::arange(2) + 2 * r) + 3).to(dtype)));
      const auto sent = at::full({3}, r, options).to(dtype);
      group.broadcast(sent, 2, {})->wait();
      EXPECT_TRUE(at::equal(sent.cpu(), at::full({3}, 2.0).to(dtype)));
    }
    const auto scaled = at::ones({4}, options);
    group.all_reduce(scaled, {ReduceOp::premul_sum, 0.25}, {})->wait();
    EXPECT_TRUE(at::equal(scaled.cpu(), at::full({4}, 0.75)));
    const auto none = at::empty({0}, options);
    group.all_gather(at::empty({0}, options), none, {})->wait();
  });
}

TEST_F(Staged, TensorsMayBeginWithinTheirStorage) {
  run(3, [](const Rank& rank) {
    auto& group = *rank.plain;
    const auto options = at::TensorOptions(staged_device());
    const auto r = static_cast<double>(rank.rank);
    // As units gather: into memory that holds more, each rank from its own place in it.
    const auto memory = at::zeros({20}, options);
    const auto gathered = memory.narrow(0, 4, 12);
    const auto own = gathered.narrow(0, 4 * rank.rank, 4);
    own.copy_(at::arange(4, options) + r);
    group.all_gather(gathered, own, {})->wait();
    EXPECT_TRUE(at::equal(memory.cpu(), at::cat({at::zeros(4), at::arange(4), at::arange(4) + 1,
                                                 at::arange(4) + 2, at::zeros(4)})));
    const auto sums = at::zeros({8}, options);
    group.reduce_scatter(sums.narrow(0, 3, 2), at::arange(9, options).narrow(0, 2, 6), {}, {})->wait();
    EXPECT_TRUE(
        at::equal(sums.cpu(), at::cat({at::zeros(3), 3 * (at::arange(2) + 2 + 2 * r), at::zeros(3)})));
    const auto ones = at::ones({6}, options);
    group.all_reduce(ones.narrow(0, 2, 2), {}, {})->wait();
    EXPECT_TRUE(at::equal(ones.cpu(), at::tensor({1.0F, 1.0F, 3.0F, 3.0F, 1.0F, 1.0F})));
    const auto sent = at::full({6}, r, options);
    group.broadcast(sent.narrow(0, 3, 2), 2, {})->wait();
    EXPECT_TRUE(at::equal(sent.cpu(), at::cat({at::full({3}, r), at::full({2}, 2.0), at::full({1}, r)})));
  });
}

TEST_F(Staged, ComesAfterWhatWasOnTheStreamAndBeforeWhatWaitsForIt) {
  run(2, [](const Rank& rank) {
    constexpr int64_t numel = 1 << 20;
    const auto device = staged_device();
    const c10::impl::VirtualGuardImpl guard(device.type());
    const auto side = side_stream();
    for (int round = 0; round < 5; ++round) {
      const auto own = late_ones(numel) * static_cast<double>(rank.rank + 1);
      c10::Event computed(device.type());
      computed.record(guard.getStream(device));
      const auto sum = at::empty({2 * numel}, at::TensorOptions(device));
      WorkPtr work;
      {
        const c10::StreamGuard beside(side);
        computed.block(side);
        work = rank.plain->all_gather(sum, own, {});
      }
      work->wait();
      const auto doubled = sum * 2;
      const auto read = doubled.cpu();
      EXPECT_TRUE(at::equal(read.narrow(0, 0, numel), at::full({numel}, 2.0)));
      EXPECT_TRUE(at::equal(read.narrow(0, numel, numel), at::full({numel}, 4.0)));
    }
  });
}

TEST_F(Staged, MemoryOfTheHostIsRefused) {
  run(2, [](const Rank& rank) {
    auto& group = *rank.plain;
    const auto there = at::ones({4}, staged_device());
    const auto here = at::ones({2});
    EXPECT_THROW(group.all_reduce(here, {}, {}), InvalidArgument);
    EXPECT_THROW(group.broadcast(here, 0, {}), InvalidArgument);
    EXPECT_THROW(group.all_gather(there, here, {}), InvalidArgument);
    EXPECT_THROW(group.reduce_scatter(here, there, {}, {}), InvalidArgument);
    group.all_reduce(there, {}, {})->wait();  // the ranks are together still
    EXPECT_TRUE(at::equal(there.cpu(), at::full({4}, 2.0)));
  });
}

TEST_F(Staged, SubgroupsAreStagedToo) {
  run(4, [](const Rank& rank) {
    const auto pair =
        rank.plain->subgroup(rank.rank < 2 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2, 3});
    EXPECT_EQ(pair->device(), staged_device());
    EXPECT_EQ(pair, rank.plain->subgroup(pair->ranks()));
    const auto sum = at::ones({2}, staged_device());
    pair->all_reduce(sum, {}, {})->wait();
    EXPECT_TRUE(at::equal(sum.cpu(), at::full({2}, 2.0)));
  });
}

TEST_F(Staged, DoesNotTouchAutogradVersions) {
  run(2, [](const Rank& rank) {
    const auto sum = at::ones({2}, staged_device());
    const auto version = sum._version();
    rank.plain->all_reduce(sum, {}, {})->wait();
    EXPECT_EQ(sum._version(), version);
  });
}

// The stream must not stand still for ever: whoever synchronises would.
TEST_F(Staged, ACarrierThatFailsIsHeardOf) {
  run(2, [](const Rank& rank) {
    const auto tensor = at::ones({2 + rank.rank}, staged_device());
    const auto message = message_of<RuntimeError>([&] {
      const auto work = rank.plain->all_reduce(tensor, {}, {});
      tensor.cpu();  // by now the carrier has failed
      work->wait();
    });
    EXPECT_THAT(message, HasSubstr("all_reduce"));
    EXPECT_THAT(message_of<RuntimeError>([&] { rank.plain->broadcast(tensor, 0, {}); }),
                HasSubstr("all_reduce"));
  });
}

TEST_F(Staged, IsNothingForTensorsOfTheCpu) {
  EXPECT_THAT(message_of<InvalidArgument>([] { make_staged_communicator(nullptr, at::kCPU); }),
              HasSubstr("need no staging"));
}

}  // namespace
}  // namespace fsdp::testing
