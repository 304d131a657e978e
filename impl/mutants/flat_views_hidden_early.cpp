#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatViewsHiddenEarly : public fsdp::flat::ReshardRule {
 public:
  bool keeps_views_after_forward(const fsdp::flat::UnitContext&) const override { return false; }
};

}  // namespace

Mutant flat_views_hidden_early() {
  return flat_mutant(
      "flat_views_hidden_early", Group::flat_parameter,
      "SHARD_GRAD_OP shows shards between forward and backward.", "fail", "sharded",
      "a parameter is a slice where it must be whole",
      flat_seams_with<&fsdp::flat::Seams::reshard, FlatViewsHiddenEarly>,
      {"UOP/*/test_writeback_between*", "UOP/TestFSDPUseOrigParamsParamAccess/*", "--world", "2"});
}

}  // namespace fsdp_cts::mutants
