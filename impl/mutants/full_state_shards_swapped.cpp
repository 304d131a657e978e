#include <ATen/ops/cat.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FullStateShardsSwapped : public PassingOn {
 public:
  using PassingOn::PassingOn;
  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite& site) override {
    if (site.phase != fsdp::Phase::state_dict) return PassingOn::all_gather(out, in, site);
    PassingOn::all_gather(out, in, site)->wait();
    out.copy_(at::cat({out.narrow(0, in.numel(), out.numel() - in.numel()), out.narrow(0, 0, in.numel())}));
    return std::make_unique<Done>();
  }
};

}  // namespace

Mutant full_state_shards_swapped() {
  Mutant mutant{"full_state_shards_swapped",
                Group::sharding,
                "A full state dict has the ranks' rows in another order.",
                "fail",
                "value",
                "rank 1's rows come first",
                seams_with_communicator<FullStateShardsSwapped>};
  mutant.cases = {"F2MP/*/test_compute_dtype#state_dict*"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
