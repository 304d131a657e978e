#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatOutputHookedTwice : public fsdp::flat::HookRule {
 public:
  std::int64_t on_output(const fsdp::flat::UnitContext&) const override { return 2; }
};

}  // namespace

Mutant flat_output_hooked_twice() {
  return flat_mutant("flat_output_hooked_twice", Group::flat_parameter,
                     "A unit hangs its backward hook on each output twice.", "fail", "counter",
                     "an output carries two hooks",
                     flat_seams_with<&fsdp::flat::Seams::hook, FlatOutputHookedTwice>,
                     {"CORE/TestHooks/*", "--quick"});
}

}  // namespace fsdp_cts::mutants
