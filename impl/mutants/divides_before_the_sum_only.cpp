#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class DividesBeforeTheSumOnly : public fsdp::ReduceRule {
 public:
  fsdp::ReducePlan plan(const fsdp::ReduceContext& context) const override {
    fsdp::ReducePlan plan = fsdp::ReduceRule::plan(context);
    if (plan.pre_divide) plan.pre_divide = *plan.pre_divide * plan.post_divide.value_or(1.0);
    plan.post_divide.reset();
    return plan;
  }
};

}  // namespace

Mutant divides_before_the_sum_only() {
  Mutant mutant{"divides_before_the_sum_only",
                Group::reduction,
                "Gradients in fp16 are divided by the number of ranks before the sum.",
                "fail",
                "value",
                "small gradients lose their last bit, or all of them",
                seams_with<&fsdp::Seams::reduce, DividesBeforeTheSumOnly>};
  mutant.cases = {"F2MP/*/test_reduce_dtype#fp16_range*", "--world", "4"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
