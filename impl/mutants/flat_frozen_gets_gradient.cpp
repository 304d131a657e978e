#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatFrozenGetsGradient : public fsdp::flat::GradientRule {
 public:
  bool exposes(bool, bool) const override { return true; }
};

}  // namespace

Mutant flat_frozen_gets_gradient() {
  return flat_mutant("flat_frozen_gets_gradient", Group::flat_parameter,
                     "A frozen member of a trained unit gets a gradient of zeros.", "fail", "gradient_none",
                     "a frozen bias has a gradient",
                     flat_seams_with<&fsdp::flat::Seams::gradient, FlatFrozenGetsGradient>,
                     {"UOP/*/test_non_uniform_requires_grad*", "--world", "2"});
}

}  // namespace fsdp_cts::mutants
