#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatEdgeMissing : public fsdp::flat::HookRule {
 public:
  bool catches_gradient(const fsdp::flat::UnitContext& unit, size_t member) const override {
    return unit.is_root || member > 0;
  }
};

}  // namespace

// Every hook is counted, since the unit's other parameters have theirs: only backward tells.
Mutant flat_edge_missing() {
  return flat_mutant("flat_edge_missing", Group::flat_parameter,
                     "The first parameter of each inner unit is not tied to the unit's gradient.", "fail",
                     "exception", "the gradient arrives at a parameter that has another shape by then",
                     flat_seams_with<&fsdp::flat::Seams::hook, FlatEdgeMissing>,
                     {"CORE/TestHooks/test_register_functions_called*", "--world", "2"});
}

}  // namespace fsdp_cts::mutants
