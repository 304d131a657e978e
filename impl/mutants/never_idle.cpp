#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class NeverIdle : public fsdp::ReshardRule {
 public:
  fsdp::TrainingState once_done() const override { return fsdp::TrainingState::post_backward; }
};

}  // namespace

Mutant never_idle() {
  Mutant mutant{"never_idle",
                Group::resharding,
                "A unit is left in the middle of its backward.",
                "fail",
                "training_state",
                "the library says that backward is still on",
                seams_with<&fsdp::Seams::reshard, NeverIdle>};
  mutant.cases = {"F2MP/*/test_compute_dtype*", "--quick"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
