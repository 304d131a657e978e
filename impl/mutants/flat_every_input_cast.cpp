#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatEveryInputCast : public fsdp::flat::CastRule {
 public:
  bool casts_as_root(const fsdp::flat::UnitContext&, const fsdp::flat::MixedPrecision&) const override {
    return true;
  }
};

}  // namespace

Mutant flat_every_input_cast() {
  return flat_mutant(
      "flat_every_input_cast", Group::flat_parameter, "Every unit casts its inputs, whatever its flags say.",
      "fail", "recorded_dtype", "a module records low-precision inputs where it was told not to cast",
      flat_seams_with<&fsdp::flat::Seams::cast, FlatEveryInputCast>, {"seed:C1MP", "--world", "2"});
}

}  // namespace fsdp_cts::mutants
