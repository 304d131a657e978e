#pragma once
// Adam and AdamW that round as torch.optim.Adam and AdamW of Python do (single-tensor path), which
// torch::optim's do not: the first moment is a lerp, the second is divided by the root of its bias correction
// before eps is added. Works on shards.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace fsdp::optim {

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

class Adam {
 public:
  explicit Adam(std::vector<AdamGroup> groups) : groups_(std::move(groups)) {}
  /// Parameters without a gradient are left alone, their step count too.
  void step();
  void zero_grad(bool set_to_none = true);
  /// Null before the parameter's first step.
  AdamState* state(const at::Tensor& parameter);
  const std::vector<AdamGroup>& groups() const { return groups_; }

 private:
  std::vector<AdamGroup> groups_;
  std::unordered_map<const c10::TensorImpl*, AdamState> states_;
};

}  // namespace fsdp::optim
