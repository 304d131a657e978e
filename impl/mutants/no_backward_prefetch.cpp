#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class NoBackwardPrefetch : public fsdp::PrefetchRule {
 public:
  std::optional<std::int64_t> in_backward(const fsdp::UnitContext&, std::int64_t) const override {
    return std::nullopt;
  }
};

}  // namespace

Mutant no_backward_prefetch() {
  return {"no_backward_prefetch",
          Group::correct_variant,
          "Backward gathers each unit when it is needed, never ahead.",
          "pass",
          "",
          "",
          seams_with<&fsdp::Seams::prefetch, NoBackwardPrefetch>};
}

}  // namespace fsdp_cts::mutants
