// Host costs of the library without a network: packing and unpacking of flat buffers, and what a unit and a
// further parameter add to a step. The group is one process that plays rank 0 of two: a gather copies, a
// reduction takes its own slice.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/optim/sgd.h>

#include "fsdp/fully_shard.hpp"
#include "fsdp/hooks.hpp"
#include "per_parameter/buffer_copies.hpp"

namespace {

class Done : public fsdp::Work {
 public:
  void wait() override {}
};

class Loopback : public fsdp::Communicator {
 public:
  std::int64_t rank() const override { return 0; }
  const std::vector<std::int64_t>& ranks() const override { return ranks_; }
  at::Device device() const override { return at::kCPU; }
  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite&) override {
    out.narrow(0, in.numel(), in.numel()).copy_(in);
    return std::make_unique<Done>();
  }
  fsdp::WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, fsdp::Reduction,
                               const fsdp::CallSite&) override {
    out.copy_(in.narrow(0, 0, out.numel()));
    return std::make_unique<Done>();
  }
  fsdp::WorkPtr all_reduce(at::Tensor, fsdp::Reduction, const fsdp::CallSite&) override {
    return std::make_unique<Done>();
  }
  fsdp::WorkPtr broadcast(at::Tensor, std::int64_t, const fsdp::CallSite&) override {
    return std::make_unique<Done>();
  }
  std::shared_ptr<Communicator> subgroup(const std::vector<std::int64_t>&) override {
    return std::make_shared<Loopback>();
  }

 private:
  std::vector<std::int64_t> ranks_ = {0, 1};
};

// Adds its parameters to its input, one by one: a unit whose computation is next to nothing.
class AdderImpl : public torch::nn::Module {
 public:
  explicit AdderImpl(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      terms_.push_back(register_parameter("term" + std::to_string(i), at::zeros({16})));
  }
  at::Tensor forward(at::Tensor x) {
    for (const at::Tensor& term : terms_) x = x + term;
    return x;
  }

 private:
  std::vector<at::Tensor> terms_;
};
FSDP_HOOKED_MODULE(Adder, AdderImpl);

class ChainImpl : public torch::nn::Module {
 public:
  ChainImpl(std::int64_t units, std::int64_t parameters) {
    for (std::int64_t i = 0; i < units; ++i)
      adders.push_back(register_module(std::to_string(i), Adder(parameters)));
  }
  at::Tensor forward(at::Tensor x) {
    for (Adder& adder : adders) x = adder(x);
    return x;
  }
  std::vector<Adder> adders;
};
FSDP_HOOKED_MODULE(Chain, ChainImpl);

void step(benchmark::State& state, bool sharded) {
  Chain chain(state.range(0), state.range(1));
  if (sharded) {
    const fsdp::FullyShardOptions options{.mesh = fsdp::DeviceMesh(std::make_shared<Loopback>())};
    for (Adder& adder : chain->adders) fsdp::fully_shard(adder, options);
    fsdp::fully_shard(chain, options);
  }
  torch::optim::SGD optimizer(chain->parameters(), torch::optim::SGDOptions(0.01));
  const at::Tensor x = at::ones({16});
  for (auto _ : state) {
    optimizer.zero_grad();
    chain(x).sum().backward();
    optimizer.step();
  }
  state.counters["per_unit"] =
      benchmark::Counter(static_cast<double>(state.range(0)),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
void plain_step(benchmark::State& state) {
  step(state, false);
}
void sharded_step(benchmark::State& state) {
  step(state, true);
}
BENCHMARK(plain_step)
    ->ArgNames({"units", "parameters"})
    ->ArgsProduct({{8, 64}, {1, 9}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(sharded_step)
    ->ArgNames({"units", "parameters"})
    ->ArgsProduct({{8, 64}, {1, 9}})
    ->Unit(benchmark::kMicrosecond);

// A unit of `parameters` square matrices over two ranks, as fsdp::Slot describes it to the copies around
// collectives.
struct Buffers {
  explicit Buffers(benchmark::State& state) {
    const std::int64_t parameters = state.range(0), width = state.range(1), numel = width * width / 2;
    shape = {width, width};
    for (std::int64_t i = 0; i < parameters; ++i) {
      slots.push_back({i * numel, numel, 0, shape});
      shards.push_back(at::ones({numel}));
      full.push_back(at::empty({2 * numel}));
      gradients.push_back(at::ones(shape));
    }
    flat = at::empty({2 * parameters * numel});
    bytes = flat.numel() * 4;
  }
  std::vector<std::int64_t> shape;
  std::vector<fsdp::Slot> slots;
  std::vector<at::Tensor> shards, full, gradients;
  at::Tensor flat;
  std::int64_t bytes;
};

void gather_copy_in(benchmark::State& state) {
  Buffers buffers(state);
  const at::Tensor own = buffers.flat.narrow(0, 0, buffers.flat.numel() / 2);
  for (auto _ : state) fsdp::gather_copy_in(buffers.slots, buffers.shards, own);
  state.SetBytesProcessed(state.iterations() * buffers.bytes / 2);
}
void gather_copy_out(benchmark::State& state) {
  Buffers buffers(state);
  for (auto _ : state) fsdp::gather_copy_out(buffers.slots, buffers.flat, buffers.full, 2);
  state.SetBytesProcessed(state.iterations() * buffers.bytes);
}
void reduce_copy_in(benchmark::State& state) {
  Buffers buffers(state);
  for (auto _ : state) fsdp::reduce_copy_in(buffers.slots, buffers.gradients, buffers.flat, 2);
  state.SetBytesProcessed(state.iterations() * buffers.bytes);
}
#define FSDP_CTS_COPY_BENCHMARK(function) \
  BENCHMARK(function)                     \
      ->ArgNames({"parameters", "width"}) \
      ->Args({2, 16})                     \
      ->Args({16, 16})                    \
      ->Args({2, 1024})                   \
      ->Unit(benchmark::kMicrosecond)
FSDP_CTS_COPY_BENCHMARK(gather_copy_in);
FSDP_CTS_COPY_BENCHMARK(gather_copy_out);
FSDP_CTS_COPY_BENCHMARK(reduce_copy_in);

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
