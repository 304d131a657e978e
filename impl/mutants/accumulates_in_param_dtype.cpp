#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class AccumulatesInParamDtype : public fsdp::AccumulateRule {
 public:
  at::ScalarType waiting_dtype(at::ScalarType gradient, std::optional<at::ScalarType>) const override {
    return gradient;
  }
};

}  // namespace

Mutant accumulates_in_param_dtype() {
  return {"accumulates_in_param_dtype",
          Group::mixed_precision,
          "Gradients of micro-batches are added up in the dtype they were computed in, not in reduce_dtype.",
          "fail",
          "value",
          "the reduced gradient lacks the low bits of a sum of four",
          seams_with<&fsdp::Seams::accumulate, AccumulatesInParamDtype>};
}

}  // namespace fsdp_cts::mutants
