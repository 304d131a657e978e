#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatSumForMean : public fsdp::flat::ReduceRule {
 public:
  fsdp::flat::Division division(std::int64_t) const override { return {}; }
};

}  // namespace

Mutant flat_sum_for_mean() {
  return flat_mutant("flat_sum_for_mean", Group::flat_parameter,
                     "A flat gradient is added over the ranks and never divided.", "fail", "value",
                     "every gradient is as many times too large as there are ranks",
                     flat_seams_with<&fsdp::flat::Seams::reduce, FlatSumForMean>,
                     {"seed:CORE", "seed:UOP", "--quick"});
}

}  // namespace fsdp_cts::mutants
