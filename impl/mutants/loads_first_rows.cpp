#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class LoadsFirstRows : public fsdp::StateDictRule {
 public:
  fsdp::Rows rows(const fsdp::ShardLayout& layout) const override { return {0, layout.length}; }
};

}  // namespace

Mutant loads_first_rows() {
  Mutant mutant{"loads_first_rows",
                Group::sharding,
                "Every rank takes the first rows of a full state dict instead of its own.",
                "fail",
                "value",
                "loaded parameters repeat rank 0's rows",
                seams_with<&fsdp::Seams::state_dict, LoadsFirstRows>};
  mutant.cases = {"F2MP/*/test_compute_dtype#state_dict*"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
