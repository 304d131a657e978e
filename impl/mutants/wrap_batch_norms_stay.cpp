#include "fsdp/wrap/wrap_rule.hpp"
#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrapBatchNormsStay : public fsdp::flat::WrapRule {
 public:
  bool wraps_individually(const torch::nn::Module&) const override { return false; }
};

}  // namespace

Mutant wrap_batch_norms_stay() {
  return flat_mutant("wrap_batch_norms_stay", Group::wrapping,
                     "Under mixed precision batch norms stay in the units around them.", "fail",
                     "unit_missing", "the batch norm is no unit of its own",
                     flat_seams_with<&fsdp::flat::Seams::wrap, WrapBatchNormsStay>,
                     {"WRAP/TestAutoWrap/test_custom_policy*", "CORE/TestHooks/test_register*",
                      "CORE/TestParamInit/*", "--world", "2"});
}

}  // namespace fsdp_cts::mutants
