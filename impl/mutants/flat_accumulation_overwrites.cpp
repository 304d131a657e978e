#include <ATen/ATen.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatAccumulationOverwrites : public fsdp::flat::ReduceRule {
 public:
  void accumulate(at::Tensor& accumulated, const at::Tensor& gradient) const override {
    accumulated.copy_(gradient);
  }
};

}  // namespace

Mutant flat_accumulation_overwrites() {
  return flat_mutant("flat_accumulation_overwrites", Group::flat_parameter,
                     "A new gradient takes the place of the earlier one in place of joining it.", "fail",
                     "value", "after two backwards the gradient is that of the second",
                     flat_seams_with<&fsdp::flat::Seams::reduce, FlatAccumulationOverwrites>,
                     {"UOP/*/test_grad_writeback*", "UOP/*/test_multiple_optimizers*", "--quick"});
}

}  // namespace fsdp_cts::mutants
