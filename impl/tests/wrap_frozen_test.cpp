// The check of frozen parameters, message by message, as the sets of modules to wrap grow.
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flat/wrap/frozen_parameters.hpp"
#include "fsdp/errors.hpp"
#include "tests/wrap_models.hpp"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

/// The message of the refusal without original parameters, or nothing.
std::string refusal(const ModulePtr& model, const ModuleSet& to_wrap, const ParameterSet& ignored = {}) {
  try {
    validate_frozen_params(model, to_wrap, ignored, /*use_orig_params=*/false);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

/// Every module whose name ends so.
ModuleSet ending(const ModulePtr& model, const std::vector<std::string>& ends) {
  ModuleSet found;
  for (const NamedModule& module : pre_order(model)) {
    for (const std::string& end : ends) {
      if (module.name.ends_with(end)) found.insert(module.module.get());
    }
  }
  return found;
}

/// What follows the first sentence, of the attention in `layer`.
std::string names_of_mixed(int layer) {
  const std::string prefix = "layers." + std::to_string(layer) + ".attn.";
  return "If possible, wrap the frozen parameters with FSDP separately.\n"
         "The following parameters have requires_grad=True:\n['" +
         prefix + "lora_A.weight']\nThe following parameters have requires_grad=False:\n['" + prefix +
         "q_proj.weight', '" + prefix + "k_proj.weight', '" + prefix + "v_proj.weight', '" + prefix +
         "o_proj.weight']";
}

std::vector<std::string> warned(const ModulePtr& model, const ModuleSet& to_wrap,
                                const ParameterSet& ignored = {}) {
  Warnings warnings;
  validate_frozen_params(model, to_wrap, ignored, /*use_orig_params=*/true);
  EXPECT_EQ(warnings.texts.empty(), refusal(model, to_wrap, ignored).empty())
      << "what is warned of with original parameters is refused without";
  return warnings.texts;
}

TEST(FrozenParams, SilentWhenEveryUnitIsUniform) {
  const ModulePtr model = std::make_shared<LoraModelImpl>();
  EXPECT_THAT(warned(model, ending(model, {"lora_A", "lora_B"})), IsEmpty());
  EXPECT_THAT(warned(model, ending(model, {"lora_A", "lora_B", "attn"})), IsEmpty());
  EXPECT_THAT(warned(model, ending(model, {"lora_A", "lora_B", "attn", ".0", ".1"})), IsEmpty());
}

TEST(FrozenParams, TheFirstMixedUnitInPostOrderIsRefused) {
  const ModulePtr model = std::make_shared<LoraModelImpl>();
  EXPECT_EQ(
      refusal(model, ending(model, {"lora_B", "attn", ".0", ".1"})),
      "layers.0.attn has both parameters with requires_grad=True and False. FSDP does not support wrapping "
      "such modules when use_orig_params=False. " +
          names_of_mixed(0));
}

TEST(FrozenParams, WithOriginalParametersEveryMixedUnitIsWarnedOf) {
  const ModulePtr model = std::make_shared<LoraModelImpl>();
  const std::string middle =
      ".attn has both parameters with requires_grad=True and False. We do not recommend wrapping such "
      "modules since "
      "the gradient memory usage will be higher than expected (4352 numel instead of 256 numel before "
      "sharding via "
      "reduce-scatter). ";
  EXPECT_THAT(warned(model, ending(model, {"lora_B", "attn", ".0", ".1"})),
              ElementsAre("layers.0" + middle + names_of_mixed(0), "layers.1" + middle + names_of_mixed(1)));
}

TEST(FrozenParams, IgnoredParametersDoNotCount) {
  const ModulePtr model = std::make_shared<LoraModelImpl>();
  ParameterSet ignored;
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.key().find("lora_A") != std::string::npos)
      ignored.insert(parameter.value().unsafeGetTensorImpl());
  }
  EXPECT_THAT(warned(model, ending(model, {"lora_B", "attn", ".0", ".1"}), ignored), IsEmpty());
}

TEST(FrozenParams, WhatNobodyWrapsIsTheRootsAndNotLookedAt) {
  const ModulePtr model = std::make_shared<LoraModelImpl>();
  EXPECT_THAT(warned(model, {}), IsEmpty());
}

}  // namespace
}  // namespace fsdp::testing
