#include <ATen/ATen.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class SlicedAfterwards : public fsdp::Work {
 public:
  SlicedAfterwards(fsdp::WorkPtr reduced, at::Tensor out, at::Tensor slice)
      : reduced_(std::move(reduced)), out_(std::move(out)), slice_(std::move(slice)) {}
  void wait() override {
    reduced_->wait();
    out_.copy_(slice_);
  }

 private:
  fsdp::WorkPtr reduced_;
  at::Tensor out_, slice_;
};

class AllReduceForReduceScatter : public PassingOn {
 public:
  using PassingOn::PassingOn;
  fsdp::WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, fsdp::Reduction reduction,
                               const fsdp::CallSite& site) override {
    const at::Tensor slice = in.narrow(0, rank() * out.numel(), out.numel());
    return std::make_unique<SlicedAfterwards>(all_reduce(in, reduction, site), out, slice);
  }
};

}  // namespace

Mutant all_reduce_for_reduce_scatter() {
  return {"all_reduce_for_reduce_scatter",
          Group::volume_and_order,
          "Gradients are all-reduced whole and then cut: the right values at twice the volume.",
          "fail",
          "collective_count",
          "no reduce-scatter in the trace",
          seams_with_communicator<AllReduceForReduceScatter>};
}

}  // namespace fsdp_cts::mutants
