#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapFrozenCheckSilent : public fsdp::flat::WrapRule {
 public:
  bool checks_frozen_parameters() const override { return false; }
};

}  // namespace

Mutant wrap_frozen_check_silent() {
  return flat_mutant("wrap_frozen_check_silent", Group::wrapping,
                     "Units that mix frozen and trainable parameters are made without a word.", "fail",
                     "warning_missing", "the warning is missing",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapFrozenCheckSilent>,
                     {"WRAP/TestAutoWrap/test_frozen_params*", "WRAP/TestWrapUtils/*", "--quick"});
}

}  // namespace fsdp_cts::mutants
