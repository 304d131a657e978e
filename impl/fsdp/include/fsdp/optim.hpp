#pragma once
// Optimizers, and their state as named tensors. Everything here works on what the optimizer updates: under
// FSDP this rank's shards. fsdp/optim_state.hpp goes from there to the names of the unsharded model.
//
// An optimizer belongs to one thread at a time.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "fsdp/optim_state.hpp"

namespace torch::optim {
class Optimizer;
}

namespace fsdp::optim {

/// What the optimizer keeps, by the names that Python gives it: SGD "momentum_buffer"; Adam and AdamW "step"
/// (int64, no dimensions), "exp_avg", "exp_avg_sq" and with amsgrad "max_exp_avg_sq". Tensors are the
/// optimizer's own, not copies. Parameters without a step yet are left out. Learning rates and other options
/// are no part of it. Throws InvalidArgument for other optimizers of torch::optim.
OptimizerState state_of(const torch::optim::Optimizer& optimizer);
/// Replaces the whole state by copies on the parameters' devices, also before the first step. Parameters that
/// are not in `state` are as before their first step. Throws RuntimeError with all faults found, before
/// anything changes: a tensor that is not the optimizer's, a value that is missing, unknown or of another
/// shape than the parameter has now.
void load_state(torch::optim::Optimizer& optimizer, const OptimizerState& state);

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled_weight_decay = false;  ///< true: AdamW
  bool foreach = false;  ///< each operation once over all parameters of the group; the same bits
};

struct AdamGroup {
  std::vector<at::Tensor> parameters;
  AdamOptions options;
};

struct AdamState {
  int64_t step = 0;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
};

/// Adam and AdamW that round as torch.optim.Adam and AdamW of Python do (single-tensor path), which
/// torch::optim's do not: the first moment is a lerp, the second is divided by the root of its bias
/// correction before eps is added.
class Adam {
 public:
  explicit Adam(std::vector<AdamGroup> groups) : groups_(std::move(groups)) {}
  /// Parameters without a gradient are left alone, their step count too.
  void step();
  void zero_grad(bool set_to_none = true);
  /// Null before the parameter's first step.
  const AdamState* state(const at::Tensor& parameter) const;
  const std::vector<AdamGroup>& groups() const { return groups_; }

 private:
  friend void load_state(Adam& adam, const OptimizerState& state);
  std::vector<AdamGroup> groups_;
  std::unordered_map<const c10::TensorImpl*, AdamState> states_;
};

/// As above, for this Adam.
OptimizerState state_of(const Adam& adam);
void load_state(Adam& adam, const OptimizerState& state);

}  // namespace fsdp::optim
