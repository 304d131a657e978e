// Gradient scaling for low precision: the loss is multiplied, gradients are divided, and a step in which one of
// them is not finite is left out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "harness/sdk/cpp/case.hpp"
#include "harness/sdk/cpp/optimizer.hpp"

namespace fsdp_cts::sdk {

struct ScalerSettings {
  double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
};
ScalerSettings scaler_settings(const Json& verb);  // of the resolved `scaler` step

class Scaler {
 public:
  virtual ~Scaler() = default;
  virtual at::Tensor scale(const at::Tensor& loss) = 0;
  virtual void unscale() = 0;
  virtual void step() = 0;  // unscales, unless that has been done
  virtual void update() = 0;
  virtual double value() const = 0;
};

// Of one rank, which looks at the gradients that it has. `optimizer` must live longer.
std::unique_ptr<Scaler> make_scaler(const ScalerSettings& settings, Optimizer& optimizer);

}  // namespace fsdp_cts::sdk
