#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapExcludeIgnored : public fsdp::flat::WrapRule {
 public:
  bool answer(const fsdp::WrapFunction& policy, const fsdp::WrapQuestion& asked) const override {
    return policy({asked.module, /*recurse=*/true, asked.nonwrapped_numel});
  }
};

}  // namespace

Mutant wrap_exclude_ignored() {
  return flat_mutant("wrap_exclude_ignored", Group::wrapping,
                     "A policy wraps modules that are excluded from wrapping.", "fail", "unit_unexpected",
                     "a module that was to be left alone is a unit",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapExcludeIgnored>,
                     {"WRAP/TestAutoWrap/test_auto_wrap_preset_*"});
}

}  // namespace fsdp_cts::mutants
