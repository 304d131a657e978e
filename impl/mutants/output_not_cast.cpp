#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class OutputNotCast : public fsdp::CastRule {
 public:
  at::Tensor output(const fsdp::MixedPrecisionPolicy&, const at::Tensor& tensor) const override {
    return tensor;
  }
};

}  // namespace

Mutant output_not_cast() {
  return {"output_not_cast",
          Group::mixed_precision,
          "output_dtype is ignored.",
          "fail",
          "exception",
          "the module after the one with output_dtype gets an input of another dtype than its weight",
          seams_with<&fsdp::Seams::cast, OutputNotCast>};
}

}  // namespace fsdp_cts::mutants
