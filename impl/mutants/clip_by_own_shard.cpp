#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

// Of all all-reduces only those of a norm belong to no unit.
class ClipByOwnShard : public PassingOn {
 public:
  using PassingOn::PassingOn;
  fsdp::WorkPtr all_reduce(at::Tensor tensor, fsdp::Reduction reduction,
                           const fsdp::CallSite& site) override {
    if (site.has_unit) return PassingOn::all_reduce(tensor, reduction, site);
    return std::make_unique<Done>();
  }
};

}  // namespace

Mutant clip_by_own_shard() {
  return flat_mutant("clip_by_own_shard", Group::flat_parameter,
                     "Gradients are clipped by the norm of this rank's shards.", "fail", "value",
                     "every rank has a norm of its own",
                     [] {
                       fsdp::flat::Seams seams;
                       seams.communicator = [](std::shared_ptr<fsdp::Communicator> inner) {
                         return std::make_shared<ClipByOwnShard>(std::move(inner));
                       };
                       return seams;
                     },
                     {"UOP/*/test_no_sync_correctness#clip*"});
}

}  // namespace fsdp_cts::mutants
