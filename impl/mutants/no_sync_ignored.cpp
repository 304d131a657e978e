#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class NoSyncIgnored : public fsdp::ReduceRule {
 public:
  bool reduces(const fsdp::UnitContext&, bool) const override { return true; }
};

}  // namespace

Mutant no_sync_ignored() {
  return {"no_sync_ignored",
          Group::volume_and_order,
          "set_requires_gradient_sync(false) is ignored: every micro-batch is reduced.",
          "fail",
          "collective_count",
          "reduce-scatters in the micro-batches before the last",
          seams_with<&fsdp::Seams::reduce, NoSyncIgnored>};
}

}  // namespace fsdp_cts::mutants
