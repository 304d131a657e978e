#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class DividesAfterTheSumOnly : public fsdp::ReduceRule {
 public:
  fsdp::ReducePlan plan(const fsdp::ReduceContext& context) const override {
    fsdp::ReducePlan plan = fsdp::ReduceRule::plan(context);
    if (plan.pre_divide) plan.post_divide = *plan.pre_divide * plan.post_divide.value_or(1.0);
    plan.pre_divide.reset();
    return plan;
  }
};

}  // namespace

Mutant divides_after_the_sum_only() {
  Mutant mutant{"divides_after_the_sum_only",
                Group::reduction,
                "Gradients in fp16 are summed as they are and divided afterwards.",
                "fail",
                "value",
                "a sum over the ranks is infinite",
                seams_with<&fsdp::Seams::reduce, DividesAfterTheSumOnly>};
  mutant.cases = {"F2MP/*/test_reduce_dtype#fp16_range*"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
