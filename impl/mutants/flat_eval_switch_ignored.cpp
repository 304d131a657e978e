#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatEvalSwitchIgnored : public fsdp::flat::CastRule {
 public:
  bool full_precision_in_eval(bool) const override { return false; }
};

}  // namespace

Mutant flat_eval_switch_ignored() {
  return flat_mutant("flat_eval_switch_ignored", Group::flat_parameter,
                     "FSDP_USE_FULL_PREC_IN_EVAL changes nothing.", "fail", "dtype",
                     "eval outputs come in low precision",
                     flat_seams_with<&fsdp::flat::Seams::cast, FlatEvalSwitchIgnored>,
                     {"UOP/*/test_no_reshard_and_mixed_precision*"});
}

}  // namespace fsdp_cts::mutants
