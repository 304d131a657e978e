#include <ATen/ATen.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class PerParameterGather : public fsdp::GatherRule {
 public:
  void copy_in(const fsdp::UnitContext&, const std::vector<fsdp::Slot>& slots,
               const std::vector<at::Tensor>& pieces, const at::Tensor& input) const override {
    for (std::size_t i = 0; i < slots.size(); ++i)
      input.narrow(0, slots[i].offset, slots[i].numel).copy_(pieces[i].flatten());
  }
};

class PerParameterReduce : public fsdp::ReduceRule {
 public:
  void copy_in(const fsdp::UnitContext& unit, const std::vector<fsdp::Slot>& slots,
               const std::vector<at::Tensor>& gradients, const at::Tensor& input) const override {
    const at::Tensor parts = input.view({unit.ranks, -1}).zero_();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const at::Tensor rows =
          slots[i].shard_dim == 0 ? gradients[i] : gradients[i].movedim(slots[i].shard_dim, 0);
      const at::Tensor place = parts.narrow(1, slots[i].offset, slots[i].numel);
      const std::int64_t chunk = slots[i].numel * rows.size(0) / rows.numel();
      for (std::int64_t rank = 0; rank * chunk < rows.size(0); ++rank) {
        const at::Tensor piece = rows.narrow(0, rank * chunk, std::min(chunk, rows.size(0) - rank * chunk));
        const at::Tensor in_order = slots[i].shard_dim == 0 ? piece : piece.movedim(0, slots[i].shard_dim);
        place[rank].narrow(0, 0, piece.numel()).copy_(in_order.reshape({-1}));
      }
    }
  }
};

fsdp::Seams per_parameter_copies_seams() {
  fsdp::Seams seams;
  seams.gather = std::make_shared<PerParameterGather>();
  seams.reduce = std::make_shared<PerParameterReduce>();
  return seams;
}

}  // namespace

Mutant per_parameter_copies() {
  return {"per_parameter_copies",
          Group::correct_variant,
          "Buffers are filled parameter by parameter with plain copies.",
          "pass",
          "",
          "",
          per_parameter_copies_seams};
}

}  // namespace fsdp_cts::mutants
