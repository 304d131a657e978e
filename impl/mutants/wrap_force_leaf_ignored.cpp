#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapForceLeafIgnored : public fsdp::flat::WrapRule {
 public:
  bool answer(const fsdp::WrapFunction& policy, const fsdp::WrapQuestion& asked) const override {
    return asked.recurse || policy(asked);
  }
};

}  // namespace

Mutant wrap_force_leaf_ignored() {
  return flat_mutant("wrap_force_leaf_ignored", Group::wrapping,
                     "A policy looks below modules that are to be leaves.", "fail", "unit_unexpected",
                     "a module inside an attention is a unit",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapForceLeafIgnored>,
                     {"WRAP/TestAutoWrap/test_auto_wrap_preset_*"});
}

}  // namespace fsdp_cts::mutants
