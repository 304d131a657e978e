#include <limits>

#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapThresholdIgnored : public fsdp::flat::WrapRule {
 public:
  bool answer(const fsdp::WrapFunction& policy, const fsdp::WrapQuestion& asked) const override {
    return policy({asked.module, asked.recurse, std::numeric_limits<std::int64_t>::max()});
  }
};

}  // namespace

Mutant wrap_threshold_ignored() {
  return flat_mutant("wrap_threshold_ignored", Group::wrapping, "A policy by size wraps small modules, too.",
                     "fail", "unit_unexpected", "a module below the threshold is a unit",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapThresholdIgnored>,
                     {"WRAP/TestAutoWrap/test_auto_wrap_*", "--quick"});
}

}  // namespace fsdp_cts::mutants
