#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatDividesAfterTheSumOnly : public fsdp::flat::ReduceRule {
 public:
  fsdp::flat::Division division(std::int64_t ranks) const override {
    return {1.0, static_cast<double>(ranks)};
  }
};

}  // namespace

Mutant flat_divides_after_the_sum_only() {
  return flat_mutant("flat_divides_after_the_sum_only", Group::flat_parameter,
                     "A flat gradient is summed as it is and divided afterwards.", "fail", "value",
                     "a sum over the ranks in fp16 is infinite",
                     flat_seams_with<&fsdp::flat::Seams::reduce, FlatDividesAfterTheSumOnly>,
                     {"CORE/*mixed_precision#fp16_range*"});
}

}  // namespace fsdp_cts::mutants
