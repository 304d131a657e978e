#include <utility>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

/// Waiting for one reduction waits for the one before it.
class OneLate : public fsdp::Work {
 public:
  explicit OneLate(fsdp::WorkPtr reduction) : reduction_(std::move(reduction)) {}
  void wait() override {
    static fsdp::WorkPtr pending;
    if (const auto before = std::exchange(pending, std::move(reduction_))) before->wait();
  }

 private:
  fsdp::WorkPtr reduction_;
};

class ReductionAwaitedLate : public PassingOn {
 public:
  using PassingOn::PassingOn;
  fsdp::WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, fsdp::Reduction reduction,
                               const fsdp::CallSite& site) override {
    return std::make_unique<OneLate>(
        PassingOn::reduce_scatter(std::move(out), std::move(in), reduction, site));
  }
};

}  // namespace

// As long as all ranks come at the same time this often goes well.
Mutant flat_reduction_awaited_late() {
  return flat_mutant("flat_reduction_awaited_late", Group::flat_parameter,
                     "A rank does not wait for the reduction that it uses, but for the one before it.",
                     "fail", "value", "gradients are read before the other rank has sent its part",
                     seams_with_communicator<ReductionAwaitedLate, fsdp::flat::Seams>,
                     {"CORE/*/test_delayed_reduce_scatter#peer*", "--world", "2"});
}

}  // namespace fsdp_cts::mutants
