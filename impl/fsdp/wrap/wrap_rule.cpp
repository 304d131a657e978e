#include "fsdp/wrap/wrap_rule.hpp"

#include "fsdp/flat/seams.hpp"

namespace fsdp::flat {

std::vector<WrapTarget> WrapRule::units(std::vector<WrapTarget> wanted, const FSDPOptions&) const {
  return wanted;
}

FSDPOptions WrapRule::merged(FSDPOptions context, const OptionsOverride& explicit_options) const {
  if (explicit_options) explicit_options(context);
  return context;
}

const WrapRule& wrap_rule(const FSDPOptions& options) {
  static const WrapRule correct;
  return options.seams && options.seams->wrap ? *options.seams->wrap : correct;
}

}  // namespace fsdp::flat
