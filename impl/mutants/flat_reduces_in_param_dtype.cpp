#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatReducesInParamDtype : public fsdp::flat::CastRule {
 public:
  at::ScalarType reduce_dtype(const fsdp::flat::MixedPrecision& policy,
                              at::ScalarType original) const override {
    return compute_dtype(policy, original);
  }
};

}  // namespace

Mutant flat_reduces_in_param_dtype() {
  return flat_mutant("flat_reduces_in_param_dtype", Group::flat_parameter,
                     "A flat gradient is reduced in the dtype of compute, whatever reduce_dtype says.",
                     "fail", "collective_dtype",
                     "a reduce-scatter carries float16 where float32 was asked for",
                     flat_seams_with<&fsdp::flat::Seams::cast, FlatReducesInParamDtype>,
                     {"UOP/TestFSDPUseOrigParamsNoSync/*", "--world", "2"});
}

}  // namespace fsdp_cts::mutants
