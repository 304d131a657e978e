// Ways through forward and backward that are not one forward, one backward, everything used.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using Dims = std::vector<int64_t>;

struct Pair {
  Mlp model{Dims{8, 6, 4}, true}, reference{Dims{8, 6, 4}, true};
  Pair(const Rank& rank, const FullyShardOptions& options = {}) {
    initialize(*model);
    initialize(*reference);
    auto with_mesh = options;
    with_mesh.mesh = rank.mesh();
    shard(model, with_mesh);
  }
};

at::Tensor input(int64_t rank, int64_t salt = 0) {
  return values({4, 8}, rank + 10 * salt);
}

void expect_all_sharded(const Mlp& model) {
  for (const auto& [name, unit] : named_units(*model)) {
    EXPECT_EQ(unit.sharded_state(), ShardedState::sharded) << name;
    EXPECT_EQ(unit.training_state(), TrainingState::idle) << name;
  }
}

TEST(Autograd, TwoForwardsBeforeOneBackward) {
  run_ranks(2, [](const Rank& rank) {
    Pair pair(rank);
    const auto loss = [](Mlp& model, int64_t r) { return (model(input(r)) + model(input(r, 1))).sum(); };
    for (int step = 0; step < 2; ++step) {
      zero_grad(*pair.model);
      loss(pair.model, rank.rank).backward();
      expect_all_sharded(pair.model);
    }
    average_gradients(pair.reference, 2, [&](int64_t r) { return loss(pair.reference, r); });
    for (size_t i = 0; i < pair.reference->parameters().size(); ++i) {
      EXPECT_TRUE(at::allclose(full_values(*pair.model, true)[i], pair.reference->parameters()[i].grad()));
    }
  });
}

TEST(Autograd, InputsThatRequireGrad) {
  run_ranks(2, [](const Rank& rank) {
    Pair pair(rank);
    auto x = input(rank.rank).set_requires_grad(true), y = input(rank.rank).set_requires_grad(true);
    pair.model(x).sum().backward();
    pair.reference(y).sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), y.grad()));
    average_gradients(pair.reference, 2, [&](int64_t r) { return pair.reference(input(r)).sum(); });
    expect_equal(*pair.model, *pair.reference, true);
    EXPECT_EQ(hook_counters(*pair.model).post_backward, 1);
    EXPECT_EQ(hook_counters(*pair.model).pre_backward, 1);
  });
}

TEST(Autograd, NoGradForward) {
  run_ranks(2, [](const Rank& rank) {
    Pair pair(rank);
    {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::equal(pair.model(input(1)), pair.reference(input(1))));
      EXPECT_EQ(hook_counters(*pair.model).pre_backward + hook_counters(*pair.model).post_backward, 0);
    }
    EXPECT_EQ(FSDPModule::of(*pair.model->layers[0]).sharded_state(), ShardedState::sharded);
    const auto output = pair.model(input(rank.rank));
    {
      const at::NoGradGuard no_grad;  // between forward and backward
      pair.model(input(5));
    }
    output.sum().backward();
    average_gradients(pair.reference, 2, [&](int64_t r) { return pair.reference(input(r)).sum(); });
    expect_equal(*pair.model, *pair.reference, true);
    expect_all_sharded(pair.model);
  });
}

struct BranchesImpl : torch::nn::Module {
  BranchesImpl()
      : used(register_module("used", Linear(4, 4))), unused(register_module("unused", Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& x, bool both) {
    const auto side = both ? unused(x) : at::Tensor();  // runs, but leads nowhere
    return used(x);
  }
  Linear used, unused;
};
FSDP_HOOKED_MODULE(Branches, BranchesImpl);

TEST(Autograd, UnusedParametersHaveNoGradientAndNobodyHangs) {
  run_ranks(2, [](const Rank& rank) {
    Branches model;
    initialize(*model);
    fully_shard(model->used, {.mesh = rank.mesh()});
    fully_shard(model->unused, {.mesh = rank.mesh()});
    fully_shard(model, {.mesh = rank.mesh()});
    for (const bool both : {false, true, false}) {
      zero_grad(*model);
      model(values({2, 4}, rank.rank), both).sum().backward();
      EXPECT_TRUE(model->used->weight.grad().defined());
      EXPECT_FALSE(model->unused->weight.mutable_grad().defined());
      EXPECT_EQ(FSDPModule::of(*model->unused).sharded_state(), ShardedState::sharded);
    }
  });
}

TEST(Autograd, FrozenParameters) {
  run_ranks(2, [](const Rank& rank) {
    Pair pair(rank);
    for (auto* model : {&pair.model, &pair.reference}) {
      (*model)->layers[0]->bias.set_requires_grad(false);
      for (auto& parameter : (*model)->layers[1]->parameters()) parameter.set_requires_grad(false);
    }
    for (int step = 0; step < 2; ++step) {
      zero_grad(*pair.model);
      rank.trace->take();
      pair.model(input(rank.rank)).sum().backward();
      int64_t reductions = 0;
      for (const auto& event : rank.trace->take()) reductions += event.kind == CollectiveKind::reduce_scatter;
      EXPECT_EQ(reductions, 2) << "nothing to reduce for a frozen unit";
    }
    EXPECT_FALSE(pair.model->layers[0]->bias.mutable_grad().defined());
    EXPECT_FALSE(pair.model->layers[1]->weight.mutable_grad().defined());
    for (int64_t r = 0; r < 2; ++r) pair.reference(input(r)).sum().backward();
    EXPECT_TRUE(at::equal(full_values(*pair.model, true)[1], pair.reference->layers[0]->weight.grad() / 2));
    // Thawed after the first step, trained from the next on.
    pair.model->layers[1]->weight.set_requires_grad(true);
    pair.model(input(rank.rank)).sum().backward();
    EXPECT_TRUE(pair.model->layers[1]->weight.grad().defined());
  });
}

struct SharedImpl : torch::nn::Module {
  SharedImpl() {
    weight = register_parameter("weight", at::zeros({4, 4}));
    alias = register_parameter("alias", weight);
  }
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weight).relu().matmul(alias); }
  at::Tensor weight, alias;
};
FSDP_HOOKED_MODULE(Shared, SharedImpl);

TEST(Autograd, SharedParametersAreOne) {
  run_ranks(2, [](const Rank& rank) {
    Shared model, reference;
    initialize(*model);
    initialize(*reference);
    auto unit = fully_shard(model, {.mesh = rank.mesh()});
    EXPECT_EQ(unit.parameters().size(), 1U);
    EXPECT_EQ(unit.state(), FSDPModule::of(*model).state());
    const auto loss = [](Shared& module, int64_t r) { return module(values({2, 4}, r)).sum(); };
    loss(model, rank.rank).backward();
    EXPECT_TRUE(model->alias.is_same(model->weight) || model->alias.sizes() == model->weight.sizes());
    loss(reference, 0).backward();
    loss(reference, 1).backward();
    EXPECT_TRUE(at::equal(full_values(*model, true)[0], reference->weight.grad() / 2));
    EXPECT_EQ(rank.trace->take().at(0).in_numel, 8) << "no room for the second name";
  });
}

/// Hands its input on; its backward fails.
struct Broken : torch::autograd::Function<Broken> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    throw std::runtime_error("broken on the way");
  }
};

TEST(Autograd, AnAbandonedBackwardLeavesNothingBehind) {
  run_ranks(2, [](const Rank& rank) {
    Pair pair(rank);
    auto x = input(rank.rank).set_requires_grad(true);
    EXPECT_THROW(pair.model(Broken::apply(x)).sum().backward(), std::runtime_error);
    zero_grad(*pair.model);
    pair.model(input(rank.rank)).sum().backward();
    expect_all_sharded(pair.model);
    average_gradients(pair.reference, 2, [&](int64_t r) { return pair.reference(input(r)).sum(); });
    expect_equal(*pair.model, *pair.reference, true);
  });
}

TEST(Autograd, SetIsLastBackward) {
  run_ranks(2, [](const Rank& rank) {
    Pair pair(rank);
    auto root = FSDPModule::of(*pair.model);
    const auto first = pair.model(input(rank.rank)).sum(), second = pair.model(input(rank.rank, 1)).sum();
    root.set_is_last_backward(false);
    second.backward();
    root.set_is_last_backward(true);
    first.backward();
    expect_all_sharded(pair.model);
    EXPECT_TRUE(pair.model->layers[0]->weight.grad().defined());
  });
}

TEST(Autograd, PostAccumulateGradHooksOfTheShard) {
  run_ranks(2, [](const Rank& rank) {
    Linear layer(4, 4);
    fully_shard(layer, {.mesh = rank.mesh()});
    struct Count : torch::autograd::PostAccumulateGradHook {
      explicit Count(int& calls) : calls(calls) {}
      void operator()(const at::Tensor& parameter) override { calls += parameter.grad().defined(); }
      int& calls;
    };
    int calls = 0;
    torch::autograd::impl::set_post_acc_grad_hooks(layer->weight, std::make_unique<Count>(calls));
    layer(values({2, 4}, 0)).sum().backward();
    EXPECT_EQ(calls, 1);
  });
}

}  // namespace
}  // namespace fsdp::testing
