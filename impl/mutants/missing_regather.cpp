#include <ATen/ATen.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

// The buffer gets zeros instead of nothing: what freed memory holds is not the same in every run.
class MissingRegather : public PassingOn {
 public:
  using PassingOn::PassingOn;
  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite& site) override {
    if (site.phase != fsdp::Phase::backward) return PassingOn::all_gather(out, in, site);
    out.zero_();
    return std::make_unique<Done>();
  }
};

}  // namespace

Mutant missing_regather() {
  return {"missing_regather",
          Group::gather,
          "After a reshard in forward, backward computes without gathering again.",
          "fail",
          "value",
          "gradients below the top unit are zero, and no gather stands in the backward's trace",
          seams_with_communicator<MissingRegather>};
}

}  // namespace fsdp_cts::mutants
