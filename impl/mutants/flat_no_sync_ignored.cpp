#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatNoSyncIgnored : public fsdp::flat::ReduceRule {
 public:
  bool reduces(const fsdp::flat::UnitContext&, bool) const override { return true; }
};

}  // namespace

Mutant flat_no_sync_ignored() {
  return flat_mutant("flat_no_sync_ignored", Group::flat_parameter,
                     "Gradients are reduced inside no_sync, too.", "fail", "value",
                     "a backward inside no_sync reduces",
                     flat_seams_with<&fsdp::flat::Seams::reduce, FlatNoSyncIgnored>,
                     {"UOP/TestFSDPUseOrigParamsNoSync/*", "--quick"});
}

}  // namespace fsdp_cts::mutants
