#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapLastUnitForgotten : public fsdp::flat::WrapRule {
 public:
  std::vector<fsdp::flat::WrapTarget> units(std::vector<fsdp::flat::WrapTarget> wanted,
                                            const fsdp::flat::FSDPOptions&) const override {
    if (!wanted.empty()) wanted.pop_back();
    return wanted;
  }
};

}  // namespace

Mutant wrap_last_unit_forgotten() {
  return flat_mutant("wrap_last_unit_forgotten", Group::wrapping,
                     "Of the modules that a policy wants, the last is not wrapped.", "fail", "unit_missing",
                     "a module that the policy names is no unit",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapLastUnitForgotten>,
                     {"WRAP/*", "CORE/TestHooks/*", "--quick"});
}

}  // namespace fsdp_cts::mutants
