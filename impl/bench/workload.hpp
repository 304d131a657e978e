// The models and data of the step benchmark, as golden/bench/workload.py has them: same layers, same order,
// same numbers. Values come from an integer hash and not from a random generator, so that two languages start
// from the same bits.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp_cts::bench {

inline constexpr double learning_rate = 0.01;

// One model with this rank's data. `units` are the modules sharded on their own; the root takes the rest.
struct Workload {
  std::shared_ptr<torch::nn::Module> model;
  std::vector<std::shared_ptr<torch::nn::Module>> units;
  std::function<at::Tensor()> loss;  // of one forward
};

// "tiny8", "tiny64": 8 or 64 Linear(16,16) units and one more layer in the root. "mlp": four
// Linear(1024,1024), batch 64. "decoder": 6 blocks, 12.3 M parameters; "decoder8": 8 blocks, 60 M. Model and data are
// on `device`. Throws std::invalid_argument for another name.
Workload make_workload(const std::string& name, int rank, c10::Device device);

}  // namespace fsdp_cts::bench
