#include <ATen/ops/zeros.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class UnusedGetsZeros : public fsdp::ReduceRule {
 public:
  at::Tensor unreached(const at::Tensor& parameter, at::IntArrayRef sizes) const override {
    return at::zeros(sizes, parameter.options().dtype(at::kBFloat16).requires_grad(false));
  }
};

}  // namespace

Mutant unused_gets_zeros() {
  Mutant mutant{"unused_gets_zeros",
                Group::reduction,
                "A parameter that backward did not reach takes part in the reduction with zeros.",
                "fail",
                "none",
                "an unused parameter has a gradient",
                seams_with<&fsdp::Seams::reduce, UnusedGetsZeros>};
  mutant.cases = {"F2MP/*/test_compute_dtype#unused*"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
