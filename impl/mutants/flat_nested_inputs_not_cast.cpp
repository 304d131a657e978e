#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatNestedInputsNotCast : public fsdp::flat::CastRule {
 public:
  bool casts_as_root(const fsdp::flat::UnitContext& unit,
                     const fsdp::flat::MixedPrecision& policy) const override {
    return unit.is_root && policy.cast_root_forward_inputs;
  }
};

}  // namespace

Mutant flat_nested_inputs_not_cast() {
  return flat_mutant("flat_nested_inputs_not_cast", Group::flat_parameter,
                     "A composable unit below the root does not cast its inputs.", "fail", "exception",
                     "a linear layer gets an input of another dtype than its weight",
                     flat_seams_with<&fsdp::flat::Seams::cast, FlatNestedInputsNotCast>,
                     {"seed:C1MP", "--world", "2"});
}

}  // namespace fsdp_cts::mutants
