#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FullStateKeepsPadding : public fsdp::StateDictRule {
 public:
  at::Tensor whole(const fsdp::ShardedTensor& entry) const override {
    const at::Tensor full = entry.full_tensor();
    if (!entry.group) return full;
    std::vector<std::int64_t> padding = full.sizes().vec();
    padding[0] = entry.layout.chunk * entry.group->size() - full.size(0);
    return at::cat({full, at::zeros(padding, full.options())});
  }
};

}  // namespace

Mutant full_state_keeps_padding() {
  Mutant mutant{"full_state_keeps_padding",
                Group::sharding,
                "A full state dict keeps the rows that pad short shards.",
                "fail",
                "exception",
                "the state does not fit the model that it is loaded into",
                seams_with<&fsdp::Seams::state_dict, FullStateKeepsPadding>};
  mutant.cases = {"F2MP/*/test_compute_dtype#state_dict*"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
