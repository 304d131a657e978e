#include "harness/sdk/cpp/scaler.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace fsdp_cts::sdk {
namespace {

class PlainScaler : public Scaler {
 public:
  PlainScaler(const ScalerSettings& settings, Optimizer& optimizer)
      : settings_(settings), optimizer_(optimizer), scale_(settings.init_scale) {}

  at::Tensor scale(const at::Tensor& loss) override { return loss * scale_; }

  void unscale() override {
    const c10::AutoGradMode no_grad(false);
    for (const at::Tensor& parameter : optimizer_.tensors()) {
      at::Tensor gradient = parameter.grad();
      if (!gradient.defined()) continue;
      found_ = found_ || !at::isfinite(gradient).all().item<bool>();
      gradient.mul_(1 / scale_);
    }
    unscaled_ = true;
  }

  void step() override {
    if (!unscaled_) unscale();
    if (!found_) optimizer_.step();
  }

  void update() override {
    if (found_) {
      scale_ *= settings_.backoff_factor;
      since_ = 0;
    } else if (++since_ == settings_.growth_interval) {
      scale_ *= settings_.growth_factor;
      since_ = 0;
    }
    found_ = unscaled_ = false;
  }

  double value() const override { return scale_; }

 private:
  ScalerSettings settings_;
  Optimizer& optimizer_;
  double scale_;
  std::int64_t since_ = 0;  // steps without a gradient that was not finite
  bool found_ = false, unscaled_ = false;
};

}  // namespace

ScalerSettings scaler_settings(const Json& verb) {
  const ScalerSettings standard;
  return {verb.value("init_scale", standard.init_scale), verb.value("growth_factor", standard.growth_factor),
          verb.value("backoff_factor", standard.backoff_factor),
          verb.value("growth_interval", standard.growth_interval)};
}

std::unique_ptr<Scaler> make_scaler(const ScalerSettings& settings, Optimizer& optimizer) {
  return std::make_unique<PlainScaler>(settings, optimizer);
}

}  // namespace fsdp_cts::sdk
