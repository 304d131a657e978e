#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatAlignmentDropped : public fsdp::flat::LayoutRule {
 public:
  std::int64_t alignment(bool, at::ScalarType) const override { return 1; }
};

}  // namespace

Mutant flat_alignment_dropped() {
  return flat_mutant("flat_alignment_dropped", Group::flat_parameter,
                     "Original parameters lie in the flat parameter without alignment.", "fail", "layout",
                     "a rank holds other elements of a parameter than the layout says",
                     flat_seams_with<&fsdp::flat::Seams::layout, FlatAlignmentDropped>,
                     {"UOP/TestFSDPUseOrigParamsWriteback/*", "--quick"});
}

}  // namespace fsdp_cts::mutants
