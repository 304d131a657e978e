#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class Over : public fsdp::Work {
 public:
  void wait() override {}
};

fsdp::WorkPtr finished(const fsdp::WorkPtr& work) {
  work->wait();
  return std::make_unique<Over>();
}

class BlockingCollectives : public PassingOn {
 public:
  using PassingOn::PassingOn;
  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite& site) override {
    return finished(PassingOn::all_gather(std::move(out), std::move(in), site));
  }
  fsdp::WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, fsdp::Reduction reduction,
                               const fsdp::CallSite& site) override {
    return finished(PassingOn::reduce_scatter(std::move(out), std::move(in), reduction, site));
  }
};

}  // namespace

Mutant blocking_collectives() {
  return {"blocking_collectives",
          Group::correct_variant,
          "Every collective is over before the host goes on.",
          "pass",
          "",
          "",
          seams_with_communicator<BlockingCollectives>};
}

}  // namespace fsdp_cts::mutants
