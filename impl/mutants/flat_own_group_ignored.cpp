#include <utility>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

// The largest group that any unit of the instance was given so far.
using Largest = std::shared_ptr<fsdp::Communicator>;

// Is its own group when asked who is in it, and the largest one when it has to reduce.
class ReducesOverLargest : public PassingOn {
 public:
  ReducesOverLargest(std::shared_ptr<fsdp::Communicator> inner, std::shared_ptr<Largest> largest)
      : PassingOn(std::move(inner)), largest_(std::move(largest)) {}
  fsdp::WorkPtr all_reduce(at::Tensor tensor, fsdp::Reduction reduction,
                           const fsdp::CallSite& site) override {
    return (*largest_)->all_reduce(std::move(tensor), reduction, site);
  }

 private:
  std::shared_ptr<Largest> largest_;
};

fsdp::flat::Seams own_group_ignored_seams() {
  const auto largest = std::make_shared<Largest>();
  fsdp::flat::Seams seams;
  seams.communicator = [largest](std::shared_ptr<fsdp::Communicator> inner) {
    if (!*largest || inner->size() > (*largest)->size()) *largest = inner;
    return std::make_shared<ReducesOverLargest>(std::move(inner), largest);
  };
  return seams;
}

}  // namespace

Mutant flat_own_group_ignored() {
  return flat_mutant("flat_own_group_ignored", Group::flat_parameter,
                     "A unit with a process group of its own is reduced over the ranks of the others.",
                     "fail", "value", "an expert's gradient is the sum over all ranks",
                     own_group_ignored_seams, {"CORE/*/test_mixture_of_experts*", "--quick"});
}

}  // namespace fsdp_cts::mutants
