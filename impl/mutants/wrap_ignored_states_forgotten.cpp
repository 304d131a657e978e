#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapIgnoredStatesForgotten : public fsdp::flat::WrapRule {
 public:
  fsdp::flat::IgnoredStates ignored(fsdp::flat::IgnoredStates) const override { return {}; }
};

}  // namespace

Mutant wrap_ignored_states_forgotten() {
  return flat_mutant("wrap_ignored_states_forgotten", Group::wrapping,
                     "Policies wrap ignored modules and count ignored parameters.", "fail", "unit_unexpected",
                     "an ignored module is a unit",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapIgnoredStatesForgotten>,
                     {"WRAP/TestAutoWrap/*ignored_modules*"});
}

}  // namespace fsdp_cts::mutants
