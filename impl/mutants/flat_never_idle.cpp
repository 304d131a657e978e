#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatNeverIdle : public fsdp::flat::ReshardRule {
 public:
  fsdp::flat::TrainingState after_backward() const override {
    return fsdp::flat::TrainingState::forward_backward;
  }
};

}  // namespace

Mutant flat_never_idle() {
  return flat_mutant("flat_never_idle", Group::flat_parameter,
                     "A unit is left in the middle of its backward.", "fail", "exception",
                     "the library refuses what it does only between passes",
                     flat_seams_with<&fsdp::flat::Seams::reshard, FlatNeverIdle>,
                     {"UOP/*/test_diff_trainability*", "--quick"});
}

}  // namespace fsdp_cts::mutants
