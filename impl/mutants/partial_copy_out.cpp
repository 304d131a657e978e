#include <ATen/ATen.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class PartialCopyOut : public fsdp::GatherRule {
 public:
  void copy_out(const fsdp::UnitContext& unit, const std::vector<fsdp::Slot>& slots, const at::Tensor& output,
                const std::vector<at::Tensor>& full) const override {
    fsdp::GatherRule::copy_out(unit, slots, output, full);
    full.front().flatten()[full.front().numel() - 1].zero_();
  }
};

}  // namespace

Mutant partial_copy_out() {
  return {"partial_copy_out",
          Group::gather,
          "The last element of a unit's first parameter is not copied out of the gathered buffer.",
          "fail",
          "value",
          "the loss differs at the first step",
          seams_with<&fsdp::Seams::gather, PartialCopyOut>};
}

}  // namespace fsdp_cts::mutants
