#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatPostAsPre : public fsdp::flat::PrefetchRule {
 public:
  fsdp::flat::BackwardPrefetch moment(const fsdp::flat::UnitContext&,
                                      fsdp::flat::BackwardPrefetch configured) const override {
    return configured == fsdp::flat::BackwardPrefetch::backward_post
               ? fsdp::flat::BackwardPrefetch::backward_pre
               : configured;
  }
};

}  // namespace

Mutant flat_post_as_pre() {
  return flat_mutant(
      "flat_post_as_pre", Group::flat_parameter,
      "With BACKWARD_POST the next unit is gathered before the gradients of the current one are "
      "computed, as with BACKWARD_PRE.",
      "fail", "collective_order", "a gather is issued before a computation that it must follow",
      flat_seams_with<&fsdp::flat::Seams::prefetch, FlatPostAsPre>,
      {"CORE/TestParityWithDDP/test_nested_*[*cuda_init_mode=CUDA_BEFORE,backward_prefetch="
       "BACKWARD_POST,*]",
       "--world", "2"});
}

}  // namespace fsdp_cts::mutants
