#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatRootNeverReduced : public fsdp::flat::ReduceRule {
 public:
  bool reduces(const fsdp::flat::UnitContext& unit, bool sync_gradients) const override {
    return sync_gradients && !unit.is_root;
  }
};

}  // namespace

Mutant flat_root_never_reduced() {
  return flat_mutant("flat_root_never_reduced", Group::flat_parameter,
                     "The root keeps its gradients to itself.", "fail", "exception",
                     "a step finds a whole gradient where a shard is due",
                     flat_seams_with<&fsdp::flat::Seams::reduce, FlatRootNeverReduced>,
                     {"CORE/TestParityWithDDP/test_nested_*", "UOP/*/test_diff_trainability*", "--quick"});
}

}  // namespace fsdp_cts::mutants
