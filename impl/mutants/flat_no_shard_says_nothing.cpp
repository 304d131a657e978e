#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatNoShardSaysNothing : public fsdp::flat::StateDictRule {
 public:
  void warn_of_whole(const fsdp::flat::UnitContext&) const override {}
};

}  // namespace

Mutant flat_no_shard_says_nothing() {
  return flat_mutant("flat_no_shard_says_nothing", Group::flat_parameter,
                     "A sharded state dict without shards comes without a warning.", "fail",
                     "warning_missing", "the UserWarning of NO_SHARD is missing",
                     flat_seams_with<&fsdp::flat::Seams::state_dict, FlatNoShardSaysNothing>,
                     {"UOP/*/test_no_reshard_and_mixed_precision#no_shard*"});
}

}  // namespace fsdp_cts::mutants
