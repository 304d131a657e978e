#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatNoBackwardPrefetch : public fsdp::flat::PrefetchRule {
 public:
  std::optional<std::int64_t> in_backward(const fsdp::flat::UnitContext&, std::int64_t) const override {
    return std::nullopt;
  }
};

}  // namespace

Mutant flat_no_backward_prefetch() {
  return flat_mutant("flat_no_backward_prefetch", Group::flat_parameter,
                     "Nothing is gathered ahead in backward, whatever backward_prefetch says.", "fail",
                     "collective_order", "a unit is gathered after the reduction that it must precede",
                     flat_seams_with<&fsdp::flat::Seams::prefetch, FlatNoBackwardPrefetch>,
                     {"CORE/TestParityWithDDP/test_nested_*", "WRAP/*/test_main_wrap_api*", "--quick"});
}

}  // namespace fsdp_cts::mutants
