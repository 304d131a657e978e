#pragma once
// A module's registered parameters as places whose contents can be looked at, exchanged, taken out and put
// back.
#include <torch/nn/module.h>

#include <memory>
#include <string>

namespace fsdp::flat {

/// The module's own parameters, undefined ones too, in order.
const torch::OrderedDict<std::string, at::Tensor>& own_parameters(const torch::nn::Module& module);

/// Whose slot, and its name there.
struct ParameterSlot {
  std::weak_ptr<torch::nn::Module> module;
  const torch::nn::Module* key = nullptr;  ///< the same module, for comparison
  std::string name;
  size_t position = 0;  ///< among the module's own parameters, as registered

  /// Null if the module is gone or has no such parameter now.
  at::Tensor* find() const;
  /// Exchanges the parameter of that name, or registers it at its position.
  void put(const at::Tensor& parameter) const;
  void take_out() const;
};

}  // namespace fsdp::flat
