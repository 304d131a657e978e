#include <ATen/core/Tensor.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatUnusedGradientStale : public fsdp::flat::GradientRule {
 public:
  void unreached(const at::Tensor& window) const override {
    at::Tensor stale = window;  // what the memory held: the same in every run
    stale.fill_(0.5);
  }
};

}  // namespace

Mutant flat_unused_gradient_stale() {
  return flat_mutant("flat_unused_gradient_stale", Group::flat_parameter,
                     "The gradient of an unused member is what its memory held before.", "fail", "value",
                     "a parameter that no forward used moves",
                     flat_seams_with<&fsdp::flat::Seams::gradient, FlatUnusedGradientStale>,
                     {"UOP/*/test_non_uniform_requires_grad#unused*"});
}

}  // namespace fsdp_cts::mutants
