#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapSettingsLost : public fsdp::flat::WrapRule {
 public:
  std::vector<fsdp::flat::WrapTarget> units(std::vector<fsdp::flat::WrapTarget> wanted,
                                            const fsdp::flat::FSDPOptions& root_options) const override {
    for (fsdp::flat::WrapTarget& unit : wanted) {
      unit.options.sharding_strategy = root_options.sharding_strategy;
      unit.options.backward_prefetch = root_options.backward_prefetch;
    }
    return wanted;
  }
};

}  // namespace

Mutant wrap_settings_lost() {
  return flat_mutant(
      "wrap_settings_lost", Group::wrapping, "Settings that a policy gives to a module are lost.", "fail",
      "unit_setting", "a unit has the root's strategy where the policy gave it another",
      flat_seams_with<&fsdp::flat::Seams::wrap, WrapSettingsLost>, {"WRAP/TestAutoWrap/test_custom_policy*"});
}

}  // namespace fsdp_cts::mutants
