#pragma once
// Trees of plain torch::nn modules to look at; none of them is run.
#include <ATen/ops/ones.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fsdp/wrap/module_tree.hpp"

namespace fsdp::testing {

using ModulePtr = std::shared_ptr<torch::nn::Module>;

/// Children "0", "1", …; LibTorch's own Sequential takes no Sequential, nor anything that has several inputs.
struct SequenceImpl : torch::nn::Module {
  explicit SequenceImpl(const std::vector<ModulePtr>& children) {
    for (size_t i = 0; i < children.size(); ++i) register_module(std::to_string(i), children[i]);
  }
};
inline ModulePtr sequence(const std::vector<ModulePtr>& children) {
  return std::make_shared<SequenceImpl>(children);
}
inline ModulePtr linear(int64_t features) {
  return torch::nn::Linear(features, features).ptr();
}

/// Four Linear(5, 5) of 30 elements: two in a row, two in a sequence of their own.
inline ModulePtr nested_sequence() {
  return sequence({linear(5), linear(5), sequence({linear(5), linear(5)})});
}

inline std::vector<std::string> names_of(const std::vector<NamedModule>& modules) {
  std::vector<std::string> names;
  for (const NamedModule& module : modules) names.push_back(module.name);
  return names;
}

inline ModulePtr at(const ModulePtr& root, const std::string& name) {
  for (const NamedModule& module : pre_order(root)) {
    if (module.name == name) return module.module;
  }
  throw std::out_of_range("no module is called " + name);
}

/// Attention of a low-rank adapted decoder: frozen projections, two small trainable matrices.
struct LoraAttentionImpl : torch::nn::Module {
  LoraAttentionImpl() {
    const auto add = [this](const char* name, int64_t in, int64_t out, bool trainable) {
      auto linear = register_module(name, torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false)));
      linear->weight.set_requires_grad(trainable);
    };
    add("q_proj", 32, 32, false);
    add("lora_A", 32, 8, true);
    add("lora_B", 8, 32, true);
    add("k_proj", 32, 32, false);
    add("v_proj", 32, 32, false);
    add("o_proj", 32, 32, false);
  }
};

/// One decoder: the attention and a frozen norm weight of its own.
struct LoraDecoderImpl : torch::nn::Module {
  LoraDecoderImpl() {
    register_module("attn", std::make_shared<LoraAttentionImpl>());
    register_parameter("norm", at::ones({32}), /*requires_grad=*/false);
  }
};

struct LoraModelImpl : torch::nn::Module {
  LoraModelImpl() {
    auto layers = register_module("layers", torch::nn::ModuleList());
    for (int layer = 0; layer < 2; ++layer) layers->push_back(std::make_shared<LoraDecoderImpl>());
  }
};

}  // namespace fsdp::testing
