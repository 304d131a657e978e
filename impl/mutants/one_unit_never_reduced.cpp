#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class OneUnitNeverReduced : public fsdp::ReduceRule {
 public:
  bool reduces(const fsdp::UnitContext& unit, bool requires_gradient_sync) const override {
    return unit.name != "0" && fsdp::ReduceRule::reduces(unit, requires_gradient_sync);
  }
};

}  // namespace

Mutant one_unit_never_reduced() {
  return {"one_unit_never_reduced",
          Group::reduction,
          "The last unit of the backward, the first of the model, is never reduced.",
          "fail",
          "none",
          "the first unit has no gradient after backward, and one reduce-scatter is missing",
          seams_with<&fsdp::Seams::reduce, OneUnitNeverReduced>};
}

}  // namespace fsdp_cts::mutants
