#pragma once
// Small models with values from a formula, so that every rank and the unsharded reference start alike.
#include <torch/nn/modules/linear.h>

#include <memory>
#include <vector>

#include "fsdp/fully_shard.hpp"
#include "fsdp/hooks.hpp"

namespace fsdp::testing {

FSDP_HOOKED_MODULE(Linear, torch::nn::LinearImpl);

struct MlpImpl : torch::nn::Module {
  /// Layers dims[0] -> dims[1] -> …, ReLU between them; `own` adds a bias of its own to the output.
  explicit MlpImpl(const std::vector<int64_t>& dims, bool own = false);
  at::Tensor forward(const at::Tensor& input);
  std::vector<Linear> layers;
  at::Tensor scale;  ///< the root's own parameter, if any
};
FSDP_HOOKED_MODULE(Mlp, MlpImpl);

/// Values in [-1, 1], multiples of 1/16, different for every `salt`.
at::Tensor values(at::IntArrayRef shape, int64_t salt, at::ScalarType dtype = at::kFloat);
/// Fills all parameters by the formula.
void initialize(torch::nn::Module& module, int64_t salt = 0);

/// Shards every layer, then the root.
void shard(Mlp& model, const FullyShardOptions& options);

/// Gradients averaged in rank order over `world` copies of the model, each with its own input; put into
/// `model`.
void average_gradients(Mlp& model, int64_t world, const std::function<at::Tensor(int64_t rank)>& loss);

void sgd_step(const torch::nn::Module& module, double lr);
void zero_grad(const torch::nn::Module& module);

/// Whole values of all parameters (`gradients`: of their gradients) of a sharded model, in order. Collective.
std::vector<at::Tensor> full_values(const torch::nn::Module& module, bool gradients = false);
/// Expects the sharded model to equal the unsharded one, bit by bit.
void expect_equal(const torch::nn::Module& sharded, const torch::nn::Module& whole, bool gradients);

}  // namespace fsdp::testing
