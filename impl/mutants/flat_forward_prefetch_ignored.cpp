#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatForwardPrefetchIgnored : public fsdp::flat::PrefetchRule {
 public:
  std::optional<std::int64_t> in_forward(const fsdp::flat::UnitContext&, std::int64_t) const override {
    return std::nullopt;
  }
};

}  // namespace

Mutant flat_forward_prefetch_ignored() {
  return flat_mutant(
      "flat_forward_prefetch_ignored", Group::flat_parameter,
      "Nothing is gathered ahead in forward, whatever forward_prefetch says.", "fail", "collective_order",
      "a unit computes before the next one's gather is issued",
      flat_seams_with<&fsdp::flat::Seams::prefetch, FlatForwardPrefetchIgnored>,
      {"CORE/TestParityWithDDP/test_nested_*[*cuda_init_mode=CUDA_BEFORE,*forward_prefetch=true*]", "--world",
       "2"});
}

}  // namespace fsdp_cts::mutants
