#pragma once
// What both engines have to know of the values an optimizer keeps for a parameter.
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/optim_state.hpp"

namespace fsdp {

using OptimizerValues = std::map<std::string, at::Tensor>;
using OptimizerValuesByTensor = std::map<const c10::TensorImpl*, const OptimizerValues*>;
OptimizerValuesByTensor by_tensor(const OptimizerState& state);

/// One value: shaped like what the optimizer updates, or a scalar that is the same everywhere.
struct OptimizerValueKind {
  at::ScalarType dtype;
  std::optional<double> scalar;
  int64_t scalar_dims = 0;
};
/// By index of the parameter and name of the value.
using OptimizerValueKinds = std::map<std::pair<size_t, std::string>, OptimizerValueKind>;

/// Throws InvalidArgument for a value that is neither a scalar nor of the shape `updated`.
OptimizerValueKind kind_of(const std::string& name, const at::Tensor& value, at::IntArrayRef updated);
at::Tensor scalar_tensor(const OptimizerValueKind& kind, at::Device device);
/// Ranks tell each other what there is: afterwards all have the same, the first rank's where several have it.
/// Leave out what this rank has for an empty piece: its optimizer may have skipped it, and kept an old step
/// counter. Collective.
void agree(OptimizerValueKinds& kinds, Communicator& group, const CallSite& site);

/// Throws RuntimeError with every unknown or repeated name and every wrong shape. `shape_of`: of the whole
/// parameter; none for a name that the module does not have.
void validate_optimizer_state(
    const torch::nn::Module& module, const FullOptimizerState& state,
    const std::function<std::optional<std::vector<int64_t>>(const std::string&)>& shape_of);

}  // namespace fsdp
