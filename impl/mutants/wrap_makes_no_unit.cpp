#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapMakesNoUnit : public fsdp::flat::WrapRule {
 public:
  bool wraps(bool) const override { return false; }
};

}  // namespace

Mutant wrap_makes_no_unit() {
  return flat_mutant(
      "wrap_makes_no_unit", Group::wrapping, "wrap() makes no unit, inside enable_wrap either.", "fail",
      "unit_missing", "a module that was to be wrapped is plain",
      flat_seams_with<&fsdp::flat::Seams::wrap, WrapMakesNoUnit>, {"WRAP/TestAutoWrap/test_wrap*"});
}

}  // namespace fsdp_cts::mutants
