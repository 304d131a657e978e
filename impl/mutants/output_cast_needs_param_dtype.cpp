#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class OutputCastNeedsParamDtype : public fsdp::CastRule {
 public:
  at::Tensor output(const fsdp::MixedPrecisionPolicy& policy, const at::Tensor& tensor) const override {
    return policy.param_dtype ? fsdp::CastRule::output(policy, tensor) : tensor;
  }
};

}  // namespace

Mutant output_cast_needs_param_dtype() {
  Mutant mutant{"output_cast_needs_param_dtype",
                Group::mixed_precision,
                "A unit with an output dtype and no compute dtype leaves its outputs as they are.",
                "fail",
                "recorded_dtype",
                "the body around the units sees another dtype between them",
                seams_with<&fsdp::Seams::cast, OutputCastNeedsParamDtype>};
  mutant.cases = {"F2MP/*/test_float16_on_one_submodule#inner_output*"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
