// What the suite does not see of FSDP1's streams: how much memory they hold, and what an end of a unit in the middle
// leaves behind. On the simulated accelerator, as the only rank of two: the other one always has the same.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/streams.hpp"
#include "harness/sim/sim.hpp"
#include "tests/models.hpp"

namespace fsdp::testing {
namespace {

namespace sim = fsdp_cts::sim;
using flat::FSDPOptions;
using flat::FullyShardedDataParallel;

const at::Device device(sim::device_type, 0);

class OrderedWork : public Work {
 public:
  OrderedWork() { done_.record(guard().getStream(device)); }
  void wait() override { done_.block(guard().getStream(device)); }

 private:
  static c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(sim::device_type); }
  c10::Event done_{sim::device_type};
};

class OneOfTwo : public Communicator {
 public:
  int64_t rank() const override { return 0; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  at::Device device() const override { return testing::device; }

  WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite&) override {
    sim::launch("all_gather", {in}, {out}, [&] {
      const auto own = sim::on_cpu(in).clone();
      sim::on_cpu(out).view({2, -1}).copy_(own.expand({2, -1}));
    });
    return std::make_unique<OrderedWork>();
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduction, const CallSite&) override {
    sim::launch("reduce_scatter", {in}, {out},
                [&] { sim::on_cpu(out).copy_(2 * sim::on_cpu(in).narrow(0, 0, out.numel())); });
    return std::make_unique<OrderedWork>();
  }
  WorkPtr all_reduce(at::Tensor tensor, Reduction, const CallSite&) override {
    sim::launch("all_reduce", {tensor}, {tensor}, [&] { sim::on_cpu(tensor).mul_(2); });
    return std::make_unique<OrderedWork>();
  }
  WorkPtr broadcast(at::Tensor, int64_t, const CallSite&) override { return std::make_unique<OrderedWork>(); }
  std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>&) override { return nullptr; }

 private:
  std::vector<int64_t> ranks_{0, 1};
};

Mlp wrapped(size_t layers, int64_t width, FSDPOptions options) {
  Mlp model(std::vector<int64_t>(layers + 1, width), false);
  model->to(device);
  options.process_group = std::make_shared<OneOfTwo>();
  for (const auto& layer : model->layers) FullyShardedDataParallel(layer, options);
  FullyShardedDataParallel(model, options);
  return model;
}

std::string found() {
  std::string text;
  for (const auto& finding : sim::drain_findings()) text += sim::describe(finding) + "\n";
  return text;
}

class FlatStreamsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sim::register_device();
    c10::impl::VirtualGuardImpl(sim::device_type).synchronizeDevice(device.index());
    sim::drain_findings();
  }
  void TearDown() override { set_stream_namer({}); }
};

/// In multiples of one unit's whole, beyond what there was before.
double peak_of_a_forward(bool limit_all_gathers) {
  constexpr size_t layers = 8;
  constexpr int64_t width = 512;
  auto model = wrapped(layers, width, {.limit_all_gathers = limit_all_gathers, .use_orig_params = true});
  const auto input = at::ones({1, width}, at::TensorOptions(device));
  auto* memory = c10::getDeviceAllocator(sim::device_type);
  const auto active = [&] { return memory->getDeviceStats(device.index()).active_bytes[0]; };
  c10::impl::VirtualGuardImpl(sim::device_type).synchronizeDevice(device.index());
  memory->resetPeakStats(device.index());
  const auto before = active().current;
  const at::NoGradGuard no_grad;
  model(input);
  return static_cast<double>(active().peak - before) / static_cast<double>(width * width * 4);
}

TEST_F(FlatStreamsTest, LimitBoundsTheWholesInFlight) {
  // One in use, one freed and perhaps still in use; and activations.
  const auto limited = peak_of_a_forward(true);
  EXPECT_GE(limited, 1.9);
  EXPECT_LE(limited, 2.1);
  // A host that waits for nothing is done before the device has begun.
  EXPECT_GE(peak_of_a_forward(false), 7.9);
}

TEST_F(FlatStreamsTest, StepsAreOrdered) {
  for (const bool limit_all_gathers : {true, false}) {
    auto model = wrapped(
        4, 16, {.forward_prefetch = true, .limit_all_gathers = limit_all_gathers, .use_orig_params = true});
    for (int step = 0; step < 3; ++step) {
      model(at::ones({2, 16}, at::TensorOptions(device))).sum().backward();
      const at::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) {
        if (parameter.mutable_grad().defined()) parameter.sub_(parameter.mutable_grad(), 0.125);
        parameter.mutable_grad().reset();
      }
    }
    EXPECT_EQ(found(), "");
  }
}

TEST_F(FlatStreamsTest, WhatASummonScopeWroteIsGathered) {
  // Without original parameters: the flat one's version does not tell, since users write to others.
  auto model = wrapped(2, 16, {});
  auto bias = model->layers.front()->bias;  // not saved for backward, so autograd lets it be written
  const auto loss = model(at::ones({2, 16}, at::TensorOptions(device))).sum();
  auto summoned = FullyShardedDataParallel::summon_full_params(*model, {});
  {
    const at::NoGradGuard no_grad;
    bias.fill_(2);
  }
  summoned.leave();
  loss.backward();
  EXPECT_EQ(found(), "");
}

TEST_F(FlatStreamsTest, MemoryOfAUnitThatEndsIsNotHandedOutEarly) {
  std::map<std::string, c10::Stream> streams;
  set_stream_namer([&](c10::Stream stream, const char* name) { streams.insert_or_assign(name, stream); });
  {
    // It stays whole after forward, while the device may still compute with it.
    auto model =
        wrapped(2, 64, {.sharding_strategy = flat::ShardingStrategy::shard_grad_op, .use_orig_params = true});
    model(at::ones({1, 64}, at::TensorOptions(device)).requires_grad_(false));
  }
  const c10::StreamGuard on(streams.at("unshard_stream"));
  const auto next = at::zeros({64 * 64}, at::TensorOptions(device));
  EXPECT_EQ(found(), "");
}

}  // namespace
}  // namespace fsdp::testing
