#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapExplicitOptionsLost : public fsdp::flat::WrapRule {
 public:
  fsdp::flat::FSDPOptions merged(fsdp::flat::FSDPOptions context,
                                 const fsdp::flat::OptionsOverride&) const override {
    return context;
  }
};

}  // namespace

Mutant wrap_explicit_options_lost() {
  return flat_mutant("wrap_explicit_options_lost", Group::wrapping,
                     "Explicit arguments of wrap() do not win over those of the context.", "fail",
                     "unit_setting", "a unit has the context's group",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapExplicitOptionsLost>,
                     {"WRAP/TestAutoWrap/test_wrap*"});
}

}  // namespace fsdp_cts::mutants
