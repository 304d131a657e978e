#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class ExtraGather : public PassingOn {
 public:
  using PassingOn::PassingOn;
  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite& site) override {
    PassingOn::all_gather(out, in, site)->wait();
    return PassingOn::all_gather(out, in, site);
  }
};

}  // namespace

Mutant extra_gather() {
  return {"extra_gather",     Group::volume_and_order,          "Every gather is done twice.",       "fail",
          "collective_count", "twice as many gathers as units", seams_with_communicator<ExtraGather>};
}

}  // namespace fsdp_cts::mutants
