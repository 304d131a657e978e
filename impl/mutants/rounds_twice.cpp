#include <ATen/ATen.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class RoundsTwice : public fsdp::AccumulateRule {
 public:
  void add_sharded(const at::Tensor& parameter, const at::Tensor& gradient) const override {
    fsdp::AccumulateRule::add_sharded(parameter, gradient.to(at::kBFloat16).to(gradient.scalar_type()));
  }
};

}  // namespace

Mutant rounds_twice() {
  return {"rounds_twice",
          Group::mixed_precision,
          "The reduced gradient passes through bf16 once more on its way to the parameter.",
          "fail",
          "value",
          "gradients reduced in fp32 lack their low bits",
          seams_with<&fsdp::Seams::accumulate, RoundsTwice>};
}

}  // namespace fsdp_cts::mutants
