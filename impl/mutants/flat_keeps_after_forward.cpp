#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatKeepsAfterForward : public fsdp::flat::ReshardRule {
 public:
  bool frees_after_forward(const fsdp::flat::UnitContext&) const override { return false; }
};

}  // namespace

Mutant flat_keeps_after_forward() {
  return flat_mutant("flat_keeps_after_forward", Group::flat_parameter,
                     "FULL_SHARD keeps parameters unsharded between forward and backward.", "fail",
                     "collective_count", "backward gathers nothing",
                     flat_seams_with<&fsdp::flat::Seams::reshard, FlatKeepsAfterForward>,
                     {"CORE/TestParityWithDDP/*", "--quick"});
}

}  // namespace fsdp_cts::mutants
