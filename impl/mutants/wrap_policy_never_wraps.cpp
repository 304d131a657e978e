#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapPolicyNeverWraps : public fsdp::flat::WrapRule {
 public:
  bool answer(const fsdp::WrapFunction&, const fsdp::WrapQuestion&) const override { return false; }
};

}  // namespace

Mutant wrap_policy_never_wraps() {
  return flat_mutant("wrap_policy_never_wraps", Group::wrapping, "A policy function is never followed.",
                     "fail", "unit_missing", "no module below the root is a unit",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapPolicyNeverWraps>,
                     {"seed:WRAP", "--quick"});
}

}  // namespace fsdp_cts::mutants
