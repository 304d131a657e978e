// SGD, Adam and AdamW over whatever tensors a rank holds, rounding in the order of PyTorch's Python
// optimizers (LibTorch's own Adam rounds differently: semantics of `lerp`).
#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <memory>
#include <string>
#include <vector>

#include "harness/sdk/cpp/case.hpp"

namespace fsdp_cts::sdk {

class Optimizer {
 public:
  struct State {
    std::string parameter;  // fully-qualified name
    std::string name;       // "exp_avg", "exp_avg_sq", "momentum_buffer"
    at::Tensor value;       // shaped like the local parameter
  };

  virtual ~Optimizer() = default;
  virtual void step() = 0;
  virtual void zero_grad(bool set_to_none) = 0;
  virtual std::vector<State> state() const { return {}; }
  // What it updates, whose gradients a scaler divides. The default throws, as that of `saved`.
  virtual std::vector<at::Tensor> tensors() const;
  // A copy of all that it keeps, step counters included, for `load` of another optimizer over parameters of
  // the same names and shapes. The default throws: not every adapter's optimizer can.
  virtual std::any saved() const;
  virtual void load(const std::any& saved);
};

struct OptimizerParameter {
  std::string name;
  at::Tensor tensor;  // updated in place; its grad() is the gradient. Without one it is skipped and its step
                      // count stays
};

// `verb` is the resolved `optimizer` step. `match` selects by std::regex_search over names; with `groups` the
// first group that matches gives its settings, and a parameter that no group matches is left out.
std::unique_ptr<Optimizer> make_optimizer(const Json& verb,
                                          const std::vector<OptimizerParameter>& parameters);

}  // namespace fsdp_cts::sdk
