#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatStateRowsOfAnotherRank : public fsdp::flat::StateDictRule {
 public:
  fsdp::Rows rows(const fsdp::ShardLayout& layout) const override {
    const std::int64_t begin = layout.start == 0 ? layout.global_shape[0] - layout.length : 0;
    return {begin, begin + layout.length};
  }
};

}  // namespace

Mutant flat_state_rows_of_another_rank() {
  return flat_mutant("flat_state_rows_of_another_rank", Group::flat_parameter,
                     "Ranks put each other's rows into a sharded state dict.", "fail", "value",
                     "loading it changes the parameters",
                     flat_seams_with<&fsdp::flat::Seams::state_dict, FlatStateRowsOfAnotherRank>,
                     {"UOP/*/test_no_reshard_and_mixed_precision#exact*"});
}

}  // namespace fsdp_cts::mutants
