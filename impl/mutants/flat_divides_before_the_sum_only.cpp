#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatDividesBeforeTheSumOnly : public fsdp::flat::ReduceRule {
 public:
  fsdp::flat::Division division(std::int64_t ranks) const override {
    return {static_cast<double>(ranks), 1.0};
  }
};

}  // namespace

Mutant flat_divides_before_the_sum_only() {
  return flat_mutant("flat_divides_before_the_sum_only", Group::flat_parameter,
                     "A flat gradient is divided by the number of ranks before the sum.", "fail", "value",
                     "small gradients in fp16 lose their last bit, or all of them",
                     flat_seams_with<&fsdp::flat::Seams::reduce, FlatDividesBeforeTheSumOnly>,
                     {"CORE/*mixed_precision#fp16_range*", "--world", "4"});
}

}  // namespace fsdp_cts::mutants
