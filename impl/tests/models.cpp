#include "tests/models.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/ranks.hpp"

namespace fsdp::testing {

MlpImpl::MlpImpl(const std::vector<int64_t>& dims, bool own) {
  for (size_t i = 0; i + 1 < dims.size(); ++i) {
    layers.push_back(register_module("layer" + std::to_string(i), Linear(dims[i], dims[i + 1])));
  }
  if (own) scale = register_parameter("scale", at::ones({dims.back()}));
}

at::Tensor MlpImpl::forward(const at::Tensor& input) {
  auto x = input;
  for (size_t i = 0; i < layers.size(); ++i) x = i + 1 < layers.size() ? layers[i](x).relu() : layers[i](x);
  return scale.defined() ? x * scale : x;
}

at::Tensor values(at::IntArrayRef shape, int64_t salt, at::ScalarType dtype) {
  const auto index = at::arange(c10::multiply_integers(shape), at::kLong);
  return ((index * 37 + salt * 11 + 5) % 33 - 16).to(dtype).div(16).view(shape);
}

void initialize(torch::nn::Module& module, int64_t salt) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : module.parameters())
    parameter.copy_(values(parameter.sizes(), ++salt, parameter.scalar_type()));
}

void shard(Mlp& model, const FullyShardOptions& options) {
  for (const auto& layer : model->layers) fully_shard(layer, options);
  fully_shard(model, options);
}

void average_gradients(Mlp& model, int64_t world, const std::function<at::Tensor(int64_t rank)>& loss) {
  std::vector<std::vector<at::Tensor>> by_rank;
  for (int64_t rank = 0; rank < world; ++rank) {
    zero_grad(*model);
    loss(rank).backward();
    by_rank.emplace_back();
    for (const auto& parameter : model->parameters()) by_rank.back().push_back(parameter.grad().clone());
  }
  const auto parameters = model->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto sum = by_rank[0][i];
    for (size_t rank = 1; rank < by_rank.size(); ++rank) sum = sum + by_rank[rank][i];
    parameters[i].mutable_grad() = sum / world;
  }
}

void sgd_step(const torch::nn::Module& module, double lr) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    if (parameter.grad().defined()) parameter.add_(parameter.grad(), -lr);
  }
}

void zero_grad(const torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) parameter.mutable_grad().reset();
}

std::vector<at::Tensor> full_values(const torch::nn::Module& module, bool gradients) {
  std::vector<at::Tensor> result;
  for (const auto& entry : named_parameters(module)) {
    const auto tensor = gradients ? entry.parameter.grad() : entry.parameter.detach();
    if (!tensor.defined() || !entry.layout) {
      result.push_back(tensor.defined() ? tensor.clone() : tensor);
    } else {
      result.push_back(ShardedTensor{tensor, *entry.layout, entry.group}.full_tensor());
    }
  }
  return result;
}

void expect_equal(const torch::nn::Module& sharded, const torch::nn::Module& whole, bool gradients) {
  const auto actual = full_values(sharded, gradients);
  const auto expected = whole.named_parameters();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto value = gradients ? expected[i].value().grad() : expected[i].value().detach();
    ASSERT_EQ(actual[i].defined(), value.defined()) << expected[i].key();
    if (!value.defined()) continue;
    EXPECT_EQ(actual[i].scalar_type(), value.scalar_type()) << expected[i].key();
    EXPECT_TRUE(at::equal(actual[i], value))
        << expected[i].key() << " differs by at most " << (actual[i] - value).abs().max().item<double>();
  }
}

}  // namespace fsdp::testing
