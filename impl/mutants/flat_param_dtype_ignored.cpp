#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatParamDtypeIgnored : public fsdp::flat::CastRule {
 public:
  at::ScalarType compute_dtype(const fsdp::flat::MixedPrecision&, at::ScalarType original) const override {
    return original;
  }
};

}  // namespace

Mutant flat_param_dtype_ignored() {
  return flat_mutant(
      "flat_param_dtype_ignored", Group::flat_parameter,
      "Parameters are gathered and used in their original dtype, whatever param_dtype says.", "fail",
      "exception", "a low-precision input meets a float32 weight",
      flat_seams_with<&fsdp::flat::Seams::cast, FlatParamDtypeIgnored>,
      {"CORE/*_single_iteration_mixed_precision*", "UOP/*/test_no_sync_mixed_precision*", "--quick"});
}

}  // namespace fsdp_cts::mutants
