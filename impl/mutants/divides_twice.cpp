#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class DividesTwice : public fsdp::ReduceRule {
 public:
  fsdp::ReducePlan plan(const fsdp::ReduceContext& context) const override {
    fsdp::ReducePlan plan = fsdp::ReduceRule::plan(context);
    plan.post_divide = plan.post_divide.value_or(1.0) * static_cast<double>(context.unit.ranks);
    return plan;
  }
};

}  // namespace

Mutant divides_twice() {
  return {"divides_twice",
          Group::reduction,
          "The mean over the ranks is divided by their number once more.",
          "fail",
          "value",
          "every gradient is as many times too small as there are ranks",
          seams_with<&fsdp::Seams::reduce, DividesTwice>};
}

}  // namespace fsdp_cts::mutants
