#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatWritebackLost : public fsdp::flat::WritebackRule {
 public:
  void write(const at::Tensor&, const at::Tensor&) const override {}
};

}  // namespace

Mutant flat_writeback_lost() {
  return flat_mutant(
      "flat_writeback_lost", Group::flat_parameter, "Changes are found and not written back.", "fail",
      "value", "a replaced parameter, or a loaded state, has no effect",
      flat_seams_with<&fsdp::flat::Seams::writeback, FlatWritebackLost>,
      {"UOP/TestFSDPUseOrigParamsWriteback/*", "CORE/TestParityWithDDP/test_nested_*", "--quick"});
}

}  // namespace fsdp_cts::mutants
