#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatFreesAfterEveryForward : public fsdp::flat::ReshardRule {
 public:
  bool frees_after_forward(const fsdp::flat::UnitContext& unit) const override { return unit.ranks > 1; }
};

}  // namespace

Mutant flat_frees_after_every_forward() {
  return flat_mutant("flat_frees_after_every_forward", Group::flat_parameter,
                     "SHARD_GRAD_OP, and the root, free parameters after forward.", "fail",
                     "collective_count", "backward gathers what was to be kept",
                     flat_seams_with<&fsdp::flat::Seams::reshard, FlatFreesAfterEveryForward>,
                     {"CORE/TestParityWithDDP/test_nested_*", "--quick"});
}

}  // namespace fsdp_cts::mutants
