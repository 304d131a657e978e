#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class ReshardAfterForwardIgnored : public fsdp::ReshardRule {
 public:
  fsdp::ShardedState after_forward(const fsdp::UnitContext&, fsdp::ShardedState) const override {
    return fsdp::ShardedState::unsharded;
  }
};

}  // namespace

Mutant reshard_after_forward_ignored() {
  return {"reshard_after_forward_ignored",
          Group::resharding,
          "Units stay unsharded after forward whatever was asked.",
          "fail",
          "collective_count",
          "no gather in backward where there must be one per unit",
          seams_with<&fsdp::Seams::reshard, ReshardAfterForwardIgnored>};
}

}  // namespace fsdp_cts::mutants
