#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class NeverFrees : public fsdp::ReshardRule {
 public:
  fsdp::ShardedState after_forward(const fsdp::UnitContext&, fsdp::ShardedState) const override {
    return fsdp::ShardedState::unsharded;
  }
  bool after_backward(const fsdp::UnitContext&, bool) const override { return false; }
};

}  // namespace

Mutant never_frees() {
  return {"never_frees",
          Group::resharding,
          "A unit that was gathered once stays unsharded for ever.",
          "fail",
          "gradient_none",
          "what the module exposes after backward is the unsharded parameter, which has no gradient",
          seams_with<&fsdp::Seams::reshard, NeverFrees>};
}

}  // namespace fsdp_cts::mutants
