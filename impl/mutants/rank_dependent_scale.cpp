#include <ATen/ATen.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class RankDependentScale : public fsdp::ReduceRule {
 public:
  void copy_in(const fsdp::UnitContext& unit, const std::vector<fsdp::Slot>& slots,
               const std::vector<at::Tensor>& gradients, const at::Tensor& input) const override {
    fsdp::ReduceRule::copy_in(unit, slots, gradients, input);
    if (unit.rank == 0) input.mul_(2);
  }
};

}  // namespace

// Where all ranks feed the same data this is one scale for all, which Adam hides.
Mutant rank_dependent_scale() {
  return {"rank_dependent_scale",
          Group::reduction,
          "Rank 0 hands in its gradients twice as large as they are.",
          "fail",
          "value",
          "gradients lean towards rank 0's data",
          seams_with<&fsdp::Seams::reduce, RankDependentScale>};
}

}  // namespace fsdp_cts::mutants
