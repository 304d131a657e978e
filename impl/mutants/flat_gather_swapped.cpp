#include <ATen/ATen.h>

#include <utility>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class Swapped : public fsdp::Work {
 public:
  Swapped(fsdp::WorkPtr gather, at::Tensor out, std::int64_t ranks)
      : gather_(std::move(gather)), out_(std::move(out)), ranks_(ranks) {}
  void wait() override {
    gather_->wait();
    out_.copy_(out_.view({ranks_, -1}).flip(0).reshape(-1));
  }

 private:
  fsdp::WorkPtr gather_;
  at::Tensor out_;
  std::int64_t ranks_;
};

class GatherSwapped : public PassingOn {
 public:
  using PassingOn::PassingOn;
  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite& site) override {
    return std::make_unique<Swapped>(PassingOn::all_gather(out, in.clone(), site), out, size());
  }
};

}  // namespace

Mutant flat_gather_swapped() {
  return flat_mutant("flat_gather_swapped", Group::flat_parameter,
                     "The shards of a flat parameter are put together in reverse order of ranks.", "fail",
                     "value", "outputs are those of other parameters",
                     seams_with_communicator<GatherSwapped, fsdp::flat::Seams>,
                     {"seed:CORE", "seed:UOP", "--quick"});
}

}  // namespace fsdp_cts::mutants
