#include <ATen/ATen.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

// What the copy-in of a unit tells the gather that follows it: where one parameter ends and the next begins.
struct Boundaries {
  std::vector<fsdp::Slot> slots;
};

class NotesBoundaries : public fsdp::GatherRule {
 public:
  explicit NotesBoundaries(std::shared_ptr<Boundaries> boundaries) : boundaries_(std::move(boundaries)) {}
  void copy_in(const fsdp::UnitContext& unit, const std::vector<fsdp::Slot>& slots,
               const std::vector<at::Tensor>& pieces, const at::Tensor& input) const override {
    boundaries_->slots = slots;
    fsdp::GatherRule::copy_in(unit, slots, pieces, input);
  }

 private:
  std::shared_ptr<Boundaries> boundaries_;
};

class AllOf : public fsdp::Work {
 public:
  std::vector<fsdp::WorkPtr> parts;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from
  void wait() override {
    for (const fsdp::WorkPtr& part : parts) part->wait();
    for (auto& [to, from] : copies) to.copy_(from);
  }
};

class PerParameter : public PassingOn {
 public:
  PerParameter(std::shared_ptr<fsdp::Communicator> inner, std::shared_ptr<Boundaries> boundaries)
      : PassingOn(std::move(inner)), boundaries_(std::move(boundaries)) {}
  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite& site) override {
    auto all = std::make_unique<AllOf>();
    for (const fsdp::Slot& slot : boundaries_->slots) {
      const at::Tensor own = in.narrow(0, slot.offset, slot.numel).clone();
      const at::Tensor gathered = at::empty({size() * slot.numel}, own.options());
      all->parts.push_back(PassingOn::all_gather(gathered, own, site));
      all->copies.emplace_back(out.view({size(), -1}).narrow(1, slot.offset, slot.numel),
                               gathered.view({size(), -1}));
    }
    return all;
  }

 private:
  std::shared_ptr<Boundaries> boundaries_;
};

fsdp::Seams per_parameter_seams() {
  const auto boundaries = std::make_shared<Boundaries>();
  fsdp::Seams seams;
  seams.gather = std::make_shared<NotesBoundaries>(boundaries);
  seams.communicator = [boundaries](std::shared_ptr<fsdp::Communicator> inner) {
    return std::make_shared<PerParameter>(std::move(inner), boundaries);
  };
  return seams;
}

}  // namespace

Mutant per_parameter_collectives() {
  return {"per_parameter_collectives",
          Group::volume_and_order,
          "Every parameter of a unit is gathered by a collective of its own.",
          "fail",
          "collective_in_numel",
          "a gather carries the shard of one parameter and not of its unit",
          per_parameter_seams};
}

}  // namespace fsdp_cts::mutants
