#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapOutsideContext : public fsdp::flat::WrapRule {
 public:
  bool wraps(bool) const override { return true; }
};

}  // namespace

Mutant wrap_outside_context() {
  return flat_mutant("wrap_outside_context", Group::wrapping, "wrap() makes a unit outside enable_wrap, too.",
                     "fail", "unit_unexpected", "a module that was to stay plain is a unit",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapOutsideContext>,
                     {"WRAP/TestAutoWrap/test_wrap*"});
}

}  // namespace fsdp_cts::mutants
