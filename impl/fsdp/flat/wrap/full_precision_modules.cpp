#include "flat/wrap/full_precision_modules.hpp"

#include <c10/util/Exception.h>

#include <optional>
#include <set>
#include <utility>

#include "fsdp/hooks.hpp"
#include "fsdp/wrap/module_class.hpp"

namespace fsdp {
namespace {

void cast_floating(TensorList& tensors, at::ScalarType dtype, std::optional<at::ScalarType>& before) {
  for (auto& tensor : tensors) {
    if (!tensor.is_floating_point() || tensor.scalar_type() == dtype) continue;
    before = tensor.scalar_type();
    tensor = tensor.to(dtype);
  }
}

}  // namespace

std::vector<NamedModule> full_precision_modules(
    const std::shared_ptr<torch::nn::Module>& root,
    const std::function<bool(const torch::nn::Module&)>& keeps_full_precision) {
  std::vector<NamedModule> found;
  std::set<std::string> classes;
  for (const NamedModule& at : pre_order(root)) {
    if (!keeps_full_precision(*at.module)) continue;
    found.push_back(at);
    classes.insert(nominal_classes(*at.module).front());
  }
  if (found.empty()) return found;
  std::string listed;
  for (const std::string& name : classes) listed += (listed.empty() ? "" : ", ") + name;
  TORCH_WARN(
      "Both mixed precision and an auto_wrap_policy were specified to FSDP, where the wrapped module has ",
      "submodules of type:\n{", listed,
      "}\nThese modules will be wrapped as separate FSDP instacnes with mixed precision disabled.");
  return found;
}

void cast_to_full_precision(torch::nn::Module& module) {
  const auto dtype_of_inputs = std::make_shared<std::optional<at::ScalarType>>();
  ForwardHooks casts;
  casts.before = [dtype_of_inputs](TensorList inputs) {
    dtype_of_inputs->reset();
    cast_floating(inputs, at::kFloat, *dtype_of_inputs);
    return inputs;
  };
  casts.after = [dtype_of_inputs](TensorList outputs) {
    std::optional<at::ScalarType> unused;
    if (const auto dtype = std::exchange(*dtype_of_inputs, std::nullopt)) {
      cast_floating(outputs, *dtype, unused);
    }
    return outputs;
  };
  install_forward_hooks(module, casts);
}

}  // namespace fsdp
