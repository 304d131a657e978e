// Which modules a policy wraps, on trees whose sizes are known by heart.
#include "fsdp/wrap/wrap_functions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include "fsdp/hooks.hpp"
#include "tests/wrap_models.hpp"

namespace fsdp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> wrapped(const ModulePtr& root, const WrapFunction& policy,
                                 const ModuleSet& ignored_modules = {}, const ParameterSet& ignored = {}) {
  return names_of(recursive_wrap_targets(root, policy, ignored_modules, ignored));
}

TEST(WrapFunctions, SizeCountsWhatIsNotYetWrapped) {
  const ModulePtr model = nested_sequence();
  EXPECT_THAT(wrapped(model, size_based_auto_wrap_policy({.min_num_params = 40})), ElementsAre("2"));
  EXPECT_THAT(wrapped(model, size_based_auto_wrap_policy({.min_num_params = 30})),
              ElementsAre("0", "1", "2.0", "2.1"))
      << "the inner sequence has nothing left";
  EXPECT_THAT(wrapped(model, size_based_auto_wrap_policy({.min_num_params = 61})), IsEmpty());
  EXPECT_THAT(wrapped(model, size_based_auto_wrap_policy()), IsEmpty()) << "a hundred million by default";
}

TEST(WrapFunctions, TheRootIsTheCallers) {
  EXPECT_THAT(wrapped(nested_sequence(), always_wrap_policy()), ElementsAre("0", "1", "2.0", "2.1", "2"));
  EXPECT_THAT(wrapped(linear(5), always_wrap_policy()), IsEmpty());
}

TEST(WrapFunctions, ModuleListsAreNotWrapped) {
  const auto small =
      sequence({torch::nn::ModuleList(torch::nn::Linear(5, 5), torch::nn::Linear(5, 5)).ptr()});
  const auto policy = size_based_auto_wrap_policy({.min_num_params = 40});
  EXPECT_THAT(wrapped(small, policy), IsEmpty());
  const auto large = torch::nn::ModuleList(torch::nn::Linear(10, 10));
  EXPECT_THAT(wrapped(large.ptr(), policy), ElementsAre("0")) << "their children may be";
  const SizeBasedOptions none_excluded{.min_num_params = 40, .exclude_wrap_modules = {}};
  EXPECT_THAT(wrapped(small, size_based_auto_wrap_policy(none_excluded)), ElementsAre("0"));
}

TEST(WrapFunctions, NothingBelowAForcedLeaf) {
  const auto attention = torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(100, 1));
  const ModulePtr model = sequence({linear(10), attention.ptr()});
  const SizeBasedOptions options{.min_num_params = 40};
  EXPECT_THAT(wrapped(model, size_based_auto_wrap_policy(options)), ElementsAre("0"))
      << "a leaf is not wrapped either: nobody asks";

  SizeBasedOptions linear_leaf = options;
  linear_leaf.force_leaf_modules.push_back(class_of<torch::nn::LinearImpl>("Linear"));
  EXPECT_THAT(wrapped(model, size_based_auto_wrap_policy(linear_leaf)), IsEmpty());
}

TEST(WrapFunctions, Ignored) {
  const ModulePtr model = nested_sequence();
  const ModuleSet ignored =
      ignored_modules_of({at(model, "1"), at(model, "2.0")}, [](const torch::nn::Module&) { return false; });
  EXPECT_THAT(wrapped(model, always_wrap_policy(), ignored), ElementsAre("0", "2.1", "2"));
  ParameterSet parameters;
  for (const char* name : {"1", "2.0"}) {
    for (const auto& parameter : at(model, name)->parameters())
      parameters.insert(parameter.unsafeGetTensorImpl());
  }
  EXPECT_THAT(wrapped(model, size_based_auto_wrap_policy({.min_num_params = 40}), ignored, parameters),
              IsEmpty())
      << "30 of the 60 elements of the inner sequence do not count";
}

TEST(WrapFunctions, AWrappedModuleCannotBeIgnored) {
  const ModulePtr model = nested_sequence();
  const auto* inner = at(model, "2.0").get();
  const auto is_inner = [&](const torch::nn::Module& module) { return &module == inner; };
  EXPECT_EQ(ignored_modules_of({at(model, "2")}, is_inner).size(), 2) << "one further below is left out";
  try {
    ignored_modules_of({at(model, "2.0")}, is_inner);
    FAIL() << "expected a ValueError";
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "`ignored_modules` should not include FSDP modules");
  }
}

TEST(WrapFunctions, ByClassAndByFunction) {
  const ModulePtr model = nested_sequence();
  const std::vector<ModuleClass> sequences{class_of<SequenceImpl>("Sequence")};
  EXPECT_THAT(wrapped(model, transformer_auto_wrap_policy(sequences)), ElementsAre("2"));
  EXPECT_THAT(wrapped(model, wrap_module_classes_individually({class_named("Linear")})),
              ElementsAre("0", "1", "2.0", "2.1"));
  const auto* first = at(model, "0").get();
  const auto is_first = [&](const torch::nn::Module& module) { return &module == first; };
  EXPECT_THAT(wrapped(model, lambda_auto_wrap_policy(is_first)), ElementsAre("0"));
}

TEST(WrapFunctions, Or) {
  const ModulePtr model = nested_sequence();
  const auto linears = wrap_module_classes_individually({class_named("Linear")});
  EXPECT_THAT(wrapped(model, or_policy({never_wrap_policy(), linears})), ElementsAre("0", "1", "2.0", "2.1"));
  EXPECT_THAT(wrapped(model, or_policy({never_wrap_policy()})), IsEmpty());
  EXPECT_THAT(wrapped(model, or_policy({linears, size_based_auto_wrap_policy({.min_num_params = 1})})),
              ElementsAre("0", "1", "2.0", "2.1"));
}

TEST(WrapFunctions, ASharedModuleIsDecidedOnce) {
  const ModulePtr shared = linear(5);
  EXPECT_THAT(wrapped(sequence({shared, sequence({shared})}),
                      wrap_module_classes_individually({class_named("Linear")})),
              ElementsAre("0"));
}

FSDP_HOOKED_MODULE(HookedLinear, torch::nn::LinearImpl);

TEST(ModuleClass, ByTypeAndByName) {
  const torch::nn::Linear plain(2, 2);
  const HookedLinear hooked(2, 2);
  for (const ModuleClass& linear : {class_of<torch::nn::LinearImpl>("Linear"), class_named("Linear")}) {
    EXPECT_TRUE(linear.matches(*plain));
    EXPECT_TRUE(linear.matches(*hooked));
    EXPECT_FALSE(linear.matches(*torch::nn::ModuleList()));
  }
  EXPECT_THAT(nominal_classes(*hooked), ElementsAre("Linear"));
}

TEST(ModuleClass, AFamilyWithNamesOfItsOwn) {
  struct Described : torch::nn::Module {};
  register_nominal_class_adapter([](const torch::nn::Module& module) {
    return dynamic_cast<const Described*>(&module) ? std::vector<std::string>{"MyNorm", "BatchNorm1d"}
                                                   : std::vector<std::string>{};
  });
  EXPECT_TRUE(class_named("MyNorm").matches(Described()));
  EXPECT_TRUE(matches_any(batch_norm_classes(), Described())) << "a base counts";
  EXPECT_TRUE(matches_any(batch_norm_classes(), *torch::nn::BatchNorm3d(4)));
  EXPECT_FALSE(matches_any(batch_norm_classes(), *torch::nn::Linear(1, 1)));
}

}  // namespace
}  // namespace fsdp::testing
