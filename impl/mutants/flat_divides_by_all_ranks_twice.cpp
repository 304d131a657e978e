#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatDividesByAllRanksTwice : public fsdp::flat::ReduceRule {
 public:
  fsdp::flat::Division division(std::int64_t ranks) const override {
    return {static_cast<double>(ranks), static_cast<double>(ranks)};
  }
};

}  // namespace

Mutant flat_divides_by_all_ranks_twice() {
  return flat_mutant(
      "flat_divides_by_all_ranks_twice", Group::flat_parameter,
      "A flat gradient is divided by the number of ranks before and after the sum.", "fail", "value",
      "every gradient is as many times too small as there are ranks",
      flat_seams_with<&fsdp::flat::Seams::reduce, FlatDividesByAllRanksTwice>,
      {"CORE/TestParityWithDDP/test_nested_wrapped_model*", "UOP/*/test_diff_trainability*", "--quick"});
}

}  // namespace fsdp_cts::mutants
