// One rank of the C++ side of the step benchmark. A request {"model": "tiny8", "what": "fsdp2", "steps": 20}
// on stdin is answered by
// {"ms": [...], "loss": "0x1.8p-1"} on stdout; `what` is
//   fsdp2    the C++ FSDP2 library
//   fsdp1    the same library's flat parameters, settings as Python's defaults
//   plain    the same model unsharded; the ranks do not talk
//   replay   the collectives that one fsdp2 step issued, in order, each waited for, no computation
// Models stay built between requests, and the process sleeps while it waits, so that programs can be measured
// in turns. On the simulated accelerator (fsdp_step_bench_sim --device sim) an answer has "findings", too, and, where
// FSDP_SIM_MACHINE names a machine, "virtual": a step's numbers in virtual time, ns and bytes, one object a step.
//
//   RANK=0 WORLD_SIZE=2 FSDP_CTS_RENDEZVOUS=/tmp/store fsdp_step_bench     (and RANK=1 beside it)
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "fsdp/comm/recording.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/fully_shard.hpp"
#include "impl/bench/workload.hpp"
#include "impl/testee/transport.hpp"

namespace fsdp_cts::bench {
namespace {

class Variant {
 public:
  virtual ~Variant() = default;
  virtual at::Tensor step() = 0;  // the loss, or undefined
};

class Training : public Variant {
 public:
  explicit Training(Workload work)
      : work_(std::move(work)),
        optimizer_(work_.model->parameters(), torch::optim::SGDOptions(learning_rate)) {}
  at::Tensor step() override {
    optimizer_.zero_grad();
    at::Tensor loss = work_.loss();
    loss.backward();
    optimizer_.step();
    return loss;
  }

 private:
  Workload work_;
  torch::optim::SGD optimizer_;
};

Workload sharded(Workload work, const std::shared_ptr<fsdp::Communicator>& world) {
  const fsdp::FullyShardOptions options{.mesh = fsdp::DeviceMesh(world)};
  for (const auto& unit : work.units) fsdp::fully_shard(unit, options);
  fsdp::fully_shard(work.model, options);
  return work;
}

Workload flattened(Workload work, const std::shared_ptr<fsdp::Communicator>& world) {
  const fsdp::flat::FSDPOptions options{.process_group = world};
  for (const auto& unit : work.units) fsdp::flat::FullyShardedDataParallel(unit, options);
  fsdp::flat::FullyShardedDataParallel(work.model, options);
  return work;
}

// Buffers are made once; inputs of gathers lie inside their outputs, as in the library.
class Replay : public Variant {
 public:
  Replay(std::vector<fsdp::CollectiveEvent> events, std::shared_ptr<fsdp::Communicator> world)
      : events_(std::move(events)), world_(std::move(world)) {
    for (const fsdp::CollectiveEvent& event : events_) {
      const auto options = at::TensorOptions(world_->device()).dtype(event.dtype);
      const at::Tensor large = at::ones({std::max(event.in_numel, event.out_numel)}, options);
      const std::int64_t small = std::min(event.in_numel, event.out_numel);
      buffers_.push_back({large, event.kind == fsdp::CollectiveKind::all_gather
                                     ? large.narrow(0, world_->rank() * small, small)
                                     : at::empty({small}, options)});
    }
  }
  at::Tensor step() override {
    for (std::size_t i = 0; i < events_.size(); ++i)
      issue(events_[i], buffers_[i].first, buffers_[i].second)->wait();
    return {};
  }

 private:
  fsdp::WorkPtr issue(const fsdp::CollectiveEvent& event, const at::Tensor& large, const at::Tensor& small) {
    switch (event.kind) {
      case fsdp::CollectiveKind::all_gather:
        return world_->all_gather(large, small, {});
      case fsdp::CollectiveKind::reduce_scatter:
        return world_->reduce_scatter(small, large, event.reduction, {});
      case fsdp::CollectiveKind::all_reduce:
        return world_->all_reduce(large, event.reduction, {});
      case fsdp::CollectiveKind::broadcast:
        return world_->broadcast(large, 0, {});
    }
    return nullptr;
  }

  std::vector<fsdp::CollectiveEvent> events_;
  std::shared_ptr<fsdp::Communicator> world_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

Workload workload(const std::string& model, const std::shared_ptr<fsdp::Communicator>& world) {
  return make_workload(model, static_cast<int>(world->rank()), world->device());
}

std::vector<fsdp::CollectiveEvent> events_of_one_step(const std::string& model,
                                                      const std::shared_ptr<fsdp::Communicator>& world) {
  const auto trace = std::make_shared<fsdp::Trace>();
  Training training(sharded(workload(model, world), fsdp::recording(world, trace)));
  training.step();  // the first step may do more than the others
  trace->take();
  training.step();
  return trace->take();
}

std::unique_ptr<Variant> make_variant(const std::string& model, const std::string& what,
                                      const std::shared_ptr<fsdp::Communicator>& world) {
  if (what == "plain") return std::make_unique<Training>(workload(model, world));
  if (what == "fsdp2") return std::make_unique<Training>(sharded(workload(model, world), world));
  if (what == "fsdp1") return std::make_unique<Training>(flattened(workload(model, world), world));
  if (what == "replay") return std::make_unique<Replay>(events_of_one_step(model, world), world);
  throw std::invalid_argument("unknown variant \"" + what + "\"; known: fsdp1, fsdp2, plain, replay");
}

std::string hexadecimal(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

nlohmann::json as_json(const testee::Stretch& stretch) {
  return {{"duration", stretch.duration.count()},
          {"compute", stretch.compute.count()},
          {"communication", stretch.communication.count()},
          {"exposed_communication", stretch.exposed_communication.count()},
          {"peak_bytes", stretch.peak_bytes}};
}

nlohmann::json answer(Variant& variant, int steps, testee::Simulation* simulation) {
  nlohmann::json result = {{"ms", nlohmann::json::array()}};
  at::Tensor loss;
  for (int i = 0; i < steps; ++i) {
    if (simulation) simulation->begin_stretch();
    const auto begin = std::chrono::steady_clock::now();
    loss = variant.step();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    result["ms"].push_back(taken.count());
    const auto stretch = simulation ? simulation->end_stretch() : std::nullopt;
    if (stretch) result["virtual"].push_back(as_json(*stretch));
  }
  if (simulation) result["findings"] = simulation->findings();
  if (loss.defined()) result["loss"] = hexadecimal(loss.item<double>());
  return result;
}

void serve(const std::string& device, const std::string& backend, bool unchecked) {
  at::set_num_threads(1);
  const testee::Transport transport = testee::transport_for(device, backend);
  if (unchecked && !transport.simulation) throw std::invalid_argument("--unchecked needs --device sim");
  const std::shared_ptr<void> unobserved = unchecked ? transport.simulation->unobserved() : nullptr;
  const std::shared_ptr<fsdp::Communicator> world = testee::make_world(transport);
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Variant>> variants;
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json request = nlohmann::json::parse(line);
    const std::string model = request.at("model"), what = request.at("what");
    std::unique_ptr<Variant>& variant = variants[{model, what}];
    if (!variant) variant = make_variant(model, what, world);
    std::cout << answer(*variant, request.at("steps"), transport.simulation.get()).dump() << std::endl;
  }
}

}  // namespace
}  // namespace fsdp_cts::bench

int main(int argc, char** argv) {
  CLI::App app("One rank of the C++ side of the step benchmark; ci/bench drives it.");
  std::string device = "cpu", backend = "gloo";
  app.add_option("--device", device, "cpu, or sim: the simulated accelerator (fsdp_step_bench_sim)")
      ->capture_default_str();
  app.add_option("--backend", backend, "gloo, or shm: shared memory")->capture_default_str();
  bool unchecked = false;
  app.add_flag("--unchecked", unchecked, "with --device sim: nothing is held against what was before");
  CLI11_PARSE(app, argc, argv);
  try {
    fsdp_cts::bench::serve(device, backend, unchecked);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "fsdp_step_bench: " << error.what() << '\n';
    return 1;
  }
}
