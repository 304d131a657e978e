#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class ReducesInParamDtype : public fsdp::CastRule {
 public:
  std::optional<at::ScalarType> reduce_dtype(const fsdp::MixedPrecisionPolicy&,
                                             at::ScalarType) const override {
    return std::nullopt;
  }
};

}  // namespace

Mutant reduces_in_param_dtype() {
  return {"reduces_in_param_dtype",
          Group::mixed_precision,
          "reduce_dtype is ignored: gradients are reduced in the dtype they were computed in.",
          "fail",
          "collective_dtype",
          "the reduce-scatter's dtype is the compute dtype",
          seams_with<&fsdp::Seams::cast, ReducesInParamDtype>};
}

}  // namespace fsdp_cts::mutants
