#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class MasterWeightsLost : public fsdp::CastRule {
 public:
  at::ScalarType shard_dtype(const fsdp::MixedPrecisionPolicy& policy,
                             at::ScalarType original) const override {
    return policy.param_dtype.value_or(original);
  }
};

}  // namespace

Mutant master_weights_lost() {
  return {"master_weights_lost",
          Group::mixed_precision,
          "Shards, hence the optimizer's parameters, are kept in param_dtype.",
          "fail",
          "dtype",
          "sharded parameters and gradients are not fp32",
          seams_with<&fsdp::Seams::cast, MasterWeightsLost>};
}

}  // namespace fsdp_cts::mutants
