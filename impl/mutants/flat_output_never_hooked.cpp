#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatOutputNeverHooked : public fsdp::flat::HookRule {
 public:
  std::int64_t on_output(const fsdp::flat::UnitContext&) const override { return 0; }
};

}  // namespace

Mutant flat_output_never_hooked() {
  return flat_mutant(
      "flat_output_never_hooked", Group::flat_parameter, "A unit hangs no backward hook on its outputs.",
      "fail", "exception", "backward meets parameters that nobody has gathered again",
      flat_seams_with<&fsdp::flat::Seams::hook, FlatOutputNeverHooked>, {"CORE/TestHooks/*", "--world", "2"});
}

}  // namespace fsdp_cts::mutants
