#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatShardsRoundedUp : public fsdp::flat::LayoutRule {
 public:
  std::int64_t shard_numel(std::int64_t unsharded_numel, std::int64_t ranks) const override {
    return (fsdp::flat::LayoutRule::shard_numel(unsharded_numel, ranks) + 7) / 8 * 8;
  }
};

}  // namespace

Mutant flat_shards_rounded_up() {
  return flat_mutant(
      "flat_shards_rounded_up", Group::flat_parameter, "Shards are made multiples of eight elements.", "fail",
      "layout", "a rank holds other elements of a parameter than the layout says",
      flat_seams_with<&fsdp::flat::Seams::layout, FlatShardsRoundedUp>,
      {"UOP/TestFSDPUseOrigParamsWriteback/*", "UOP/TestFSDPUseOrigParamsParamAccess/*", "--quick"});
}

}  // namespace fsdp_cts::mutants
