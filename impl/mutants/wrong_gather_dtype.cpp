#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class WrongGatherDtype : public fsdp::CastRule {
 public:
  at::ScalarType gather_dtype(const fsdp::MixedPrecisionPolicy&, at::ScalarType original) const override {
    return original;
  }
};

}  // namespace

Mutant wrong_gather_dtype() {
  return {"wrong_gather_dtype",
          Group::gather,
          "Parameters are gathered, and computed with, in their original dtype.",
          "fail",
          "exception",
          "the first layer gets an input of another dtype than its weight",
          seams_with<&fsdp::Seams::cast, WrongGatherDtype>};
}

}  // namespace fsdp_cts::mutants
