#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatWritebackUnchecked : public fsdp::flat::WritebackRule {
 public:
  bool checks(const fsdp::flat::UnitContext&, bool) const override { return false; }
};

}  // namespace

Mutant flat_writeback_unchecked() {
  return flat_mutant("flat_writeback_unchecked", Group::flat_parameter,
                     "What users do to original parameters is never looked at.", "fail", "value",
                     "a replaced parameter has no effect",
                     flat_seams_with<&fsdp::flat::Seams::writeback, FlatWritebackUnchecked>,
                     {"UOP/TestFSDPUseOrigParamsWriteback/*", "--quick"});
}

}  // namespace fsdp_cts::mutants
