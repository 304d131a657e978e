#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class SumForMean : public fsdp::ReduceRule {
 public:
  fsdp::ReducePlan plan(const fsdp::ReduceContext&) const override {
    return {{}, {fsdp::ReduceOp::sum}, {fsdp::ReduceOp::sum}, {}};
  }
};

}  // namespace

Mutant sum_for_mean() {
  return {"sum_for_mean",
          Group::reduction,
          "Gradients are added over the ranks and never divided.",
          "fail",
          "value",
          "every gradient is as many times too large as there are ranks",
          seams_with<&fsdp::Seams::reduce, SumForMean>};
}

}  // namespace fsdp_cts::mutants
