#include <ATen/core/Tensor.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatGradientPaddingStale : public fsdp::flat::GradientRule {
 public:
  void gap(const at::Tensor& window) const override {
    at::Tensor stale = window;  // what the memory held: the same in every run
    stale.fill_(0.5);
  }
};

}  // namespace

Mutant flat_gradient_padding_stale() {
  return flat_mutant("flat_gradient_padding_stale", Group::flat_parameter,
                     "The padding of a flat gradient is what its memory held before.", "fail", "value",
                     "the norm of the gradient is too large where the optimizer sees the flat parameter",
                     flat_seams_with<&fsdp::flat::Seams::gradient, FlatGradientPaddingStale>,
                     {"UOP/*/test_no_sync_correctness#clip*"});
}

}  // namespace fsdp_cts::mutants
