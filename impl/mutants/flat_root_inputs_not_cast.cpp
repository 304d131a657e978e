#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatRootInputsNotCast : public fsdp::flat::CastRule {
 public:
  bool casts_as_root(const fsdp::flat::UnitContext&, const fsdp::flat::MixedPrecision&) const override {
    return false;
  }
};

}  // namespace

Mutant flat_root_inputs_not_cast() {
  return flat_mutant(
      "flat_root_inputs_not_cast", Group::flat_parameter, "The root does not cast its inputs.", "fail",
      "exception", "a linear layer gets an input of another dtype than its weight",
      flat_seams_with<&fsdp::flat::Seams::cast, FlatRootInputsNotCast>,
      {"UOP/*/test_no_sync_mixed_precision*", "CORE/*_single_iteration_mixed_precision*", "--quick"});
}

}  // namespace fsdp_cts::mutants
