#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class FlatViewsAsParameters : public fsdp::flat::HookRule {
 public:
  bool shows_tensors(const fsdp::flat::UnitContext&, bool) const override { return false; }
};

}  // namespace

Mutant flat_views_as_parameters() {
  return flat_mutant(
      "flat_views_as_parameters", Group::flat_parameter, "Forward shows whole parameters as leaves.", "fail",
      "gradient_none", "no gradient reaches the flat parameter",
      flat_seams_with<&fsdp::flat::Seams::hook, FlatViewsAsParameters>, {"CORE/TestAutograd/*", "--quick"});
}

}  // namespace fsdp_cts::mutants
