#include <utility>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

/// A collective that is issued when somebody waits for it.
class Postponed : public fsdp::Work {
 public:
  explicit Postponed(std::function<fsdp::WorkPtr()> issue) : issue_(std::move(issue)) {}
  void wait() override {
    if (const auto issue = std::exchange(issue_, nullptr)) issue()->wait();
  }

 private:
  std::function<fsdp::WorkPtr()> issue_;
};

class ReducesWhenAwaited : public PassingOn {
 public:
  using PassingOn::PassingOn;
  fsdp::WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, fsdp::Reduction reduction,
                               const fsdp::CallSite& site) override {
    return std::make_unique<Postponed>(
        [this, out, in, reduction, site] { return PassingOn::reduce_scatter(out, in, reduction, site); });
  }
};

}  // namespace

// Values, counts and dtypes are right: communication only overlaps with nothing.
Mutant reduces_when_awaited() {
  Mutant mutant{
      "reduces_when_awaited",
      Group::volume_and_order,
      "A unit's reduction is issued when the next unit needs its place, not when its backward is over.",
      "fail",
      "collective_order",
      "the gather of the unit two before comes first",
      seams_with_communicator<ReducesWhenAwaited>};
  mutant.cases = {"F2MP/*/test_compute_dtype#moments*", "--world", "2"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
