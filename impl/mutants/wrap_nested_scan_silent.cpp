#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapNestedScanSilent : public fsdp::flat::WrapRule {
 public:
  bool refuses_nested_units() const override { return false; }
};

}  // namespace

Mutant wrap_nested_scan_silent() {
  return flat_mutant("wrap_nested_scan_silent", Group::wrapping,
                     "A policy runs over a model that holds units already.", "fail", "no_error",
                     "the refusal is missing",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapNestedScanSilent>,
                     {"WRAP/*/test_error_already_wrapped*"});
}

}  // namespace fsdp_cts::mutants
