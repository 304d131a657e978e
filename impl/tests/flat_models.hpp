#pragma once
// Models for the tests of FSDP1 whose modules read their parameters from the registration at each forward, so
// that a parameter that user code puts there is the one that is used.
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/flat/inspection.hpp"
#include "fsdp/hooks.hpp"
#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {

inline const std::vector<flat::ShardingStrategy> kStrategies{flat::ShardingStrategy::full_shard,
                                                             flat::ShardingStrategy::shard_grad_op,
                                                             flat::ShardingStrategy::no_shard};

struct SlotLinearImpl : torch::nn::Module {
  SlotLinearImpl(int64_t in, int64_t out, bool bias = true);
  at::Tensor forward(const at::Tensor& input);
  at::Tensor& slot(const std::string& name) { return parameters_[name]; }
  at::Tensor weight, bias;  ///< the first parameters, which stay members when the slots are taken out
  std::vector<at::ScalarType> input_dtypes;  ///< of each forward so far
};
FSDP_HOOKED_MODULE(SlotLinear, SlotLinearImpl);

/// The seeds' writeback model: lin1 5 -> 5, ReLU, lin2 5 -> 7. `bias1`: whether lin1 has a bias.
struct TwoLinearsImpl : torch::nn::Module {
  explicit TwoLinearsImpl(bool bias1 = true);
  at::Tensor forward(const at::Tensor& input);
  SlotLinear lin1{nullptr}, lin2{nullptr};
};
FSDP_HOOKED_MODULE(TwoLinears, TwoLinearsImpl);

/// Two layers 4 -> 4 that share their weight.
struct TiedImpl : torch::nn::Module {
  TiedImpl();
  at::Tensor forward(const at::Tensor& input);
  SlotLinear outer{nullptr}, inner{nullptr};
};
FSDP_HOOKED_MODULE(Tied, TiedImpl);

/// Adds the mean over all ranks of the gradients that `loss(rank)` gives the unsharded model.
void add_mean_gradients(const torch::nn::Module& whole, int64_t world,
                        const std::function<at::Tensor(int64_t rank)>& loss);

/// What this rank sees of a parameter.
flat::OriginalParameter seen(const torch::nn::Module& root, const std::string& name);

/// Whole parameters equal those of the unsharded model, bit by bit and name by name. Collective.
void expect_whole_parameters(const torch::nn::Module& model, const torch::nn::Module& whole);

/// p -= lr * gradient, for parameters whose gradient is defined and has their shape.
void step_exposed(const torch::nn::Module& model, double lr);

struct CollectiveCount {
  int64_t forward_gathers = 0, backward_gathers = 0, scatters = 0, all_reduces = 0;
  bool operator==(const CollectiveCount&) const = default;
};
void PrintTo(const CollectiveCount& count, std::ostream* out);
/// Since the last look at the trace.
CollectiveCount collectives(const Rank& rank);

}  // namespace fsdp::testing
