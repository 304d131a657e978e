#include <ATen/ATen.h>

#include <map>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class StaleGather : public fsdp::GatherRule {
 public:
  void copy_in(const fsdp::UnitContext& unit, const std::vector<fsdp::Slot>& slots,
               const std::vector<at::Tensor>& pieces, const at::Tensor& input) const override {
    std::vector<at::Tensor> current;
    for (const at::Tensor& piece : pieces) current.push_back(piece.detach().clone());
    const auto [kept, first] = previous_.try_emplace(unit.name, current);
    fsdp::GatherRule::copy_in(unit, slots, kept->second, input);
    kept->second = std::move(current);
  }

 private:
  mutable std::map<std::string, std::vector<at::Tensor>> previous_;
};

}  // namespace

Mutant stale_gather() {
  return {"stale_gather",
          Group::gather,
          "A gather sends the shard as it was at the gather before.",
          "fail",
          "value",
          "from the second step on the loss is that of parameters one step old",
          seams_with<&fsdp::Seams::gather, StaleGather>};
}

}  // namespace fsdp_cts::mutants
