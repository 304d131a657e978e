// What users of the library met: lives of modules and handles, errors in the middle, engines that meet.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "fsdp/comm/dummy_group.hpp"
#include "fsdp/flat/state_dict.hpp"
#include "fsdp/state_dict.hpp"
#include "fsdp/wrap/policies.hpp"
#include "tests/flat_models.hpp"

namespace fsdp::testing {
namespace {

using flat::FullyShardedDataParallel;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

FullyShardOptions alone() {
  return {.mesh = DeviceMesh(make_dummy_group(0, 1))};
}

flat::FSDPOptions flat_options(const Rank& rank, bool use_orig_params = true) {
  flat::FSDPOptions options;
  options.process_group = rank.recorded;
  options.use_orig_params = use_orig_params;
  return options;
}

TEST(Lives, AStaticShardedModuleEndsWithTheProgram) {
  EXPECT_EXIT(
      {
        static Linear layer(4, 4);
        fully_shard(layer, alone());
        std::exit(0);
      },
      ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        static SlotLinear layer(4, 4);
        flat::FSDPOptions options;
        options.process_group = make_dummy_group(0, 1);
        FullyShardedDataParallel(layer, options);
        std::exit(0);
      },
      ExitedWithCode(0), "");
}

// The allocator gives a new module the address of one that has just died.
TEST(Lives, AKeptHandleDoesNotClaimTheNextModuleAtItsAddress) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory back, so no module is made at that address";
#endif
  run_ranks(1, [](const Rank&) {
    const torch::nn::Module* address = nullptr;
    std::optional<FSDPModule> kept;
    {
      Linear gone(8, 8);
      address = gone.get();
      kept = fully_shard(gone, alone());
    }
    std::vector<Linear> others;  // kept alive, so that each new one lies elsewhere
    bool met = false;
    for (int i = 0; i < 100 && !met; ++i) {
      Linear fresh(8, 8);
      EXPECT_FALSE(FSDPModule::is(*fresh));
      met = fresh.get() == address;
      if (met) {
        EXPECT_NO_THROW(fully_shard(fresh, alone()));
      }
      others.push_back(fresh);
    }
    EXPECT_TRUE(met) << "no module was made at that address: this test has shown nothing";
  });
}

TEST(Lives, AHandleWhoseModuleIsGoneSaysSo) {
  run_ranks(1, [](const Rank& rank) {
    const auto orphan = [&] {
      SlotLinear layer(4, 4);
      return FullyShardedDataParallel(layer, flat_options(rank));
    }();
    auto handle = orphan;
    const auto text = HasSubstr("The module of this FSDP handle no longer exists");
    EXPECT_THAT(message_of<InvalidState>([&] { handle.no_sync(); }), text);
    EXPECT_THAT(message_of<InvalidState>([&] { handle.clip_grad_norm_(1.0); }), text);
  });
}

TEST(Engines, DoNotShardWhatTheOtherHasSharded) {
  run_ranks(2, [](const Rank& rank) {
    TwoLinears outer;
    fully_shard(outer->lin1, {.mesh = rank.mesh()});
    EXPECT_THAT(message_of<InvalidArgument>([&] { FullyShardedDataParallel(outer, flat_options(rank)); }),
                HasSubstr("FullyShardedDataParallel cannot be applied over fully_shard: 'lin1'"));
    TwoLinears other;
    FullyShardedDataParallel(other->lin2, flat_options(rank));
    EXPECT_THAT(message_of<InvalidArgument>([&] { fully_shard(other, {.mesh = rank.mesh()}); }),
                HasSubstr("fully_shard cannot be applied over FullyShardedDataParallel: 'lin2'"));
    EXPECT_EQ(other->lin1->weight.size(0), 5) << "nothing was changed";
  });
}

/// Two layers and a parameter of the root's own; its backward can be made to fail in the middle.
struct FailingImpl : torch::nn::Module {
  FailingImpl()
      : first(register_module("first", Linear(4, 4))),
        last(register_module("last", Linear(4, 4))),
        scale(register_parameter("scale", at::ones({4}))) {}
  at::Tensor forward(const at::Tensor& input) {
    const auto hidden = first(input);
    if (fails) hidden.register_hook([](const at::Tensor&) { throw std::runtime_error("in the middle"); });
    return last(hidden) * scale;
  }
  Linear first, last;
  at::Tensor scale;
  bool fails = false;
};
FSDP_HOOKED_MODULE(Failing, FailingImpl);

TEST(Errors, ABackwardThatFailedLeavesNoGradientForTheNext) {
  run_ranks(2, [](const Rank& rank) {
    const auto step = [&](bool fails_before) {
      Failing model;
      initialize(*model);
      fully_shard(model->first, {.mesh = rank.mesh()});
      fully_shard(model->last, {.mesh = rank.mesh()});
      fully_shard(model, {.mesh = rank.mesh()});
      if (fails_before) {
        model->fails = true;
        EXPECT_THROW(model(values({2, 4}, rank.rank)).sum().backward(), std::runtime_error);
        model->fails = false;
        zero_grad(*model);
      }
      model(values({2, 4}, 7 + rank.rank)).sum().backward();
      return full_values(*model, /*gradients=*/true);
    };
    const auto expected = step(false), after_failure = step(true);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], after_failure[i])) << i;
  });
}

/// Parameters of two dtypes whose bytes do not line up: 3 elements of 2 bytes a rank, then 4-byte ones cut by
/// column.
struct UnalignedImpl : torch::nn::Module {
  UnalignedImpl()
      : narrow(register_parameter("narrow", values({6}, 1, at::kBFloat16), /*requires_grad=*/false)),
        wide(register_parameter("wide", values({4, 4}, 2))) {}
  at::Tensor forward(const at::Tensor& input) {
    seen = {narrow.clone(), wide.detach().clone()};
    return (input * wide).sum() + narrow.sum().to(at::kFloat);
  }
  at::Tensor narrow, wide;
  std::vector<at::Tensor> seen;
};
FSDP_HOOKED_MODULE(Unaligned, UnalignedImpl);

TEST(Gather, OfDtypesThatDoNotLineUp) {
  run_ranks(2, [](const Rank& rank) {
    Unaligned module;
    const auto wide = module->wide;
    fully_shard(module, {.mesh = rank.mesh(), .shard_placement_fn = [&](const at::Tensor& parameter) {
                           return parameter.is_same(wide) ? std::optional<int64_t>(1) : std::nullopt;
                         }});
    module(at::ones({4, 4})).backward();
    EXPECT_TRUE(at::equal(module->seen[0], values({6}, 1, at::kBFloat16)));
    EXPECT_TRUE(at::equal(module->seen[1], values({4, 4}, 2)));
  });
}

TEST(Summon, AForwardInsideIsSaidOnLeavingAndTrainingGoesOn) {
  for (const bool use_orig_params : {true, false}) {
    run_ranks(2, [=](const Rank& rank) {
      TwoLinears model, whole;
      initialize(*model);
      initialize(*whole);
      FullyShardedDataParallel(model->lin1, flat_options(rank, use_orig_params));
      FullyShardedDataParallel(model->lin2, flat_options(rank, use_orig_params));
      FullyShardedDataParallel(model, flat_options(rank, use_orig_params));
      const auto input = values({3, 5}, 1);
      const auto expected = whole(input);
      auto scope = FullyShardedDataParallel::summon_full_params(*model);
      model(input);
      EXPECT_THAT(message_of<InvalidState>([&] { scope.leave(); }),
                  HasSubstr("were resharded inside summon_full_params"));
      EXPECT_TRUE(at::equal(model(input), expected));
      auto again = FullyShardedDataParallel::summon_full_params(*model);
      EXPECT_NO_THROW(again.leave()) << "every unit was put back";
    });
  }
}

TEST(ConstructorThatThrows, LeavesTheModelWhole) {
  run_ranks(2, [](const Rank& rank) {
    TwoLinears model;
    for (auto* layer : {model->lin1.get(), model->lin2.get()}) {
      for (auto& parameter : layer->parameters()) {
        const auto meta = at::empty_like(parameter, at::TensorOptions(at::kMeta));
        parameter.unsafeGetTensorImpl()->shallow_copy_from(meta.getIntrusivePtr());
      }
    }
    auto options = flat_options(rank);
    options.auto_wrap_policy =
        std::make_shared<flat::ModuleWrapPolicy>(std::vector{class_of<SlotLinearImpl>("SlotLinear")});
    int calls = 0;
    options.param_init_fn = [&](torch::nn::Module&) {
      if (++calls == 2) throw std::runtime_error("no values for the second");
    };
    EXPECT_THROW(FullyShardedDataParallel(model, options), std::runtime_error);
    EXPECT_EQ(calls, 2);
    for (const auto* layer : {model->lin1.get(), model->lin2.get()}) {
      EXPECT_FALSE(FullyShardedDataParallel::is(*layer));
      EXPECT_EQ(layer->weight.dim(), 2);
    }
  });
}

// The unit that was gathered ahead does not run; its shard changes before it does.
TEST(ForwardPrefetch, OfAUnitThatDoesNotRunIsNotUsedLater) {
  run_ranks(2, [](const Rank& rank) {
    struct SkippingImpl : torch::nn::Module {
      SkippingImpl()
          : first(register_module("first", SlotLinear(4, 4))),
            last(register_module("last", SlotLinear(4, 4))) {}
      at::Tensor forward(const at::Tensor& input) { return skips ? first(input) : last(first(input)); }
      SlotLinear first, last;
      bool skips = false;
    };
    FSDP_HOOKED_MODULE(Skipping, SkippingImpl);
    Skipping model, whole;
    initialize(*model);
    initialize(*whole, 1);
    auto options = flat_options(rank);
    options.forward_prefetch = true;
    FullyShardedDataParallel(model->first, options);
    FullyShardedDataParallel(model->last, options);
    FullyShardedDataParallel(model, options);
    const auto input = values({3, 4}, 1);
    model(input).sum().backward();  // the first iteration settles the order
    {
      const at::NoGradGuard no_grad;
      model->skips = true;
      model(input);
      model->skips = false;
      flat::StateDict state;
      for (const auto& entry : whole->named_parameters())
        state.emplace_back(entry.key(), entry.value().detach());
      flat::load_full_state_dict(*model, state);
      EXPECT_TRUE(at::equal(model->last(input), whole->last(input)));
      EXPECT_TRUE(at::equal(model(input), whole(input)));
    }
  });
}

TEST(OptimizerState, OfAnyNameAndAnyScalar) {
  run_ranks(2, [](const Rank& rank) {
    SlotLinear model(5, 3);
    initialize(*model);
    FullyShardedDataParallel(model, flat_options(rank));
    flat::OptimizerState own;
    for (auto& parameter : model->parameters()) {
      if (parameter.numel() == 0) continue;
      own.emplace_back(parameter, std::map<std::string, at::Tensor>{
                                      {"a name with blanks", at::full_like(parameter.detach(), 3)},
                                      {"inf", at::scalar_tensor(std::numeric_limits<double>::infinity())},
                                      {"nan", at::scalar_tensor(std::nan(""))}});
    }
    const auto full = flat::full_optimizer_state(*model, own);
    ASSERT_EQ(full.size(), 2U);
    for (const auto& [name, entries] : full) {
      ASSERT_EQ(entries.size(), 3U) << name;
      EXPECT_TRUE(at::equal(entries.at("a name with blanks"),
                            at::full(name == "weight" ? at::IntArrayRef{3, 5} : at::IntArrayRef{3}, 3.0)));
      EXPECT_TRUE(std::isinf(entries.at("inf").item<double>()));
      EXPECT_TRUE(std::isnan(entries.at("nan").item<double>()));
    }
  });
}

TEST(Writeback, AReplacedParameterIsKnownByItsNewObject) {
  run_ranks(2, [](const Rank& rank) {
    SlotLinear model(4, 4);
    initialize(*model);
    FullyShardedDataParallel(model, flat_options(rank));
    model(values({2, 4}, 1));
    auto& slot = model->slot("weight");
    slot = slot.detach().clone().set_requires_grad(true);
    model(values({2, 4}, 1));
    EXPECT_TRUE(seen(*model, "weight").managed);
    SlotLinear around(4, 4);
    EXPECT_TRUE(FullyShardedDataParallel::is(*model));
  });
}

struct DefaultsImpl : torch::nn::Module {
  DefaultsImpl() : bias(register_parameter("bias", at::ones({2}))) {}
  at::Tensor forward(const at::Tensor& input, double factor = 2, bool negate = false) {
    return (negate ? -input : input) * factor + bias;
  }
  at::Tensor bias;
};
FSDP_HOOKED_MODULE(Defaults, DefaultsImpl);

struct OverloadsImpl : torch::nn::Module {
  OverloadsImpl() : bias(register_parameter("bias", at::ones({2}))) {}
  at::Tensor forward(const at::Tensor& input) { return input + bias; }
  at::Tensor forward(const at::Tensor& input, const at::Tensor& other) { return input + other + bias; }
  at::Tensor bias;
};
FSDP_HOOKED_MODULE(Overloads, OverloadsImpl);

TEST(HookedForward, TakesDefaultArgumentsAndOverloads) {
  run_ranks(2, [](const Rank& rank) {
    Defaults defaults;
    EXPECT_EQ(defaults(at::ones({2}))[0].item<float>(), 3);
    fully_shard(defaults, {.mesh = rank.mesh()});
    EXPECT_EQ(defaults(at::ones({2}))[1].item<float>(), 3);
    EXPECT_EQ(defaults(at::ones({2}), 3.0)[1].item<float>(), 4);
    EXPECT_EQ(defaults(at::ones({2}), 3.0, true)[1].item<float>(), -2);
    Overloads overloads;
    fully_shard(overloads, {.mesh = rank.mesh()});
    EXPECT_EQ(overloads(at::ones({2}))[1].item<float>(), 2);
    EXPECT_EQ(overloads(at::ones({2}), at::ones({2}))[1].item<float>(), 3);
  });
}

TEST(HookedForward, RefusesAHookThatLosesTensors) {
  run_ranks(1, [](const Rank&) {
    Linear layer(2, 2);
    install_forward_hooks(
        *layer, {[](TensorList) { return TensorList{}; }, [](TensorList outputs) { return outputs; }});
    EXPECT_EQ(message_of<RuntimeError>([&] {
                layer(at::ones({1, 2}));
              }),
              "A hook that runs before forward was given 1 tensors and returned 0.");
  });
}

}  // namespace
}  // namespace fsdp::testing
