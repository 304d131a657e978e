#pragma once
// Decisions on the way from a policy to units, behind a class whose methods *are* the correct rule; see
// fsdp/seams.hpp for the idea. Handed in through flat::Seams::wrap.
#include <vector>

#include "fsdp/flat/wrap_policy.hpp"
#include "fsdp/wrap/policies.hpp"

namespace fsdp::flat {

class WrapRule {
 public:
  virtual ~WrapRule() = default;
  /// Whether a unit below an automatically wrapped root is refused.
  virtual bool refuses_nested_units() const { return true; }
  /// Whether units that mix frozen and trainable parameters are refused or warned of.
  virtual bool checks_frozen_parameters() const { return true; }
  /// Whether a module that mixed precision must not reach becomes a unit of its own.
  virtual bool wraps_individually(const torch::nn::Module&) const { return true; }
  /// What stays outside every unit, as far as policies are concerned.
  virtual IgnoredStates ignored(IgnoredStates states) const { return states; }
  /// What a policy function says.
  virtual bool answer(const WrapFunction& policy, const WrapQuestion& asked) const { return policy(asked); }
  /// What becomes of the units that a policy wants, each with the options it wants.
  virtual std::vector<WrapTarget> units(std::vector<WrapTarget> wanted,
                                        const FSDPOptions& root_options) const;
  /// Whether `wrap` makes a unit.
  virtual bool wraps(bool inside_enable_wrap) const { return inside_enable_wrap; }
  /// The options of a unit that `wrap` makes.
  virtual FSDPOptions merged(FSDPOptions context, const OptionsOverride& explicit_options) const;
};

/// The rule of these options' seams, or the correct one.
const WrapRule& wrap_rule(const FSDPOptions& options);

}  // namespace fsdp::flat
