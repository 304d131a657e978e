#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class InputNotCast : public fsdp::CastRule {
 public:
  at::Tensor input(const fsdp::MixedPrecisionPolicy&, const at::Tensor& tensor) const override {
    return tensor;
  }
};

}  // namespace

Mutant input_not_cast() {
  return {"input_not_cast",
          Group::mixed_precision,
          "Inputs reach a module as they are, not in its param_dtype.",
          "fail",
          "exception",
          "a layer gets an fp32 input for its low-precision weight",
          seams_with<&fsdp::Seams::cast, InputNotCast>};
}

}  // namespace fsdp_cts::mutants
