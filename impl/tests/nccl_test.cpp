// The CUDA library: what it answers without a GPU, and training on one GPU.
#include "fsdp/comm/nccl.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "fsdp/errors.hpp"
#include "fsdp/fully_shard.hpp"
#include "fsdp/hooks.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

FSDP_HOOKED_MODULE(HookedLinear, torch::nn::LinearImpl);

TEST(NcclWithoutGpu, ThereIsNoGroup) {
  if (!has_nccl()) GTEST_SKIP() << "configured without a CUDA toolkit or NCCL";
  if (at::hasCUDA()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(message_of<RuntimeError>([] { make_nccl_communicator({}, 0); }),
              AllOf(HasSubstr("device 0"), HasSubstr("no CUDA device")));
}

class NcclOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_nccl() || !at::hasCUDA()) GTEST_SKIP() << "needs NCCL and a GPU";
  }
};

TEST_F(NcclOnGpu, RefusesADeviceThatIsNotThere) {
  EXPECT_THAT(message_of<RuntimeError>([] { make_nccl_communicator({}, 1000); }), HasSubstr("device 1000"));
}

// A backward that starts long after the host has gone on shows whether streams are ordered: the host is ahead
// of the device all the time, and freed memory is used again at once.
TEST_F(NcclOnGpu, OneRankTrainsLikeAnUnshardedModel) {
  const auto world = make_nccl_communicator({}, 0);
  HookedLinear sharded(512, 512);
  sharded->to(at::kCUDA);
  const auto weight = sharded->weight.detach().clone(), bias = sharded->bias.detach().clone();
  weight.set_requires_grad(true);
  bias.set_requires_grad(true);
  fully_shard(sharded, {.mesh = DeviceMesh(world)});
  for (int step = 0; step < 50; ++step) {
    const auto x = at::randn({256, 512}, at::kCUDA);
    sharded(x).square().mean().backward();
    at::linear(x, weight, bias).square().mean().backward();
    const at::NoGradGuard no_grad;
    for (const auto& [mine, plain] : {std::pair(sharded->weight, weight), std::pair(sharded->bias, bias)}) {
      auto updated = mine, expected = plain;
      updated.add_(mine.grad(), -0.1);
      expected.add_(plain.grad(), -0.1);
      mine.mutable_grad().reset();
      plain.mutable_grad().reset();
    }
  }
  EXPECT_TRUE(at::equal(sharded->weight, weight));
  EXPECT_TRUE(at::equal(sharded->bias, bias));
}

}  // namespace
}  // namespace fsdp::testing
