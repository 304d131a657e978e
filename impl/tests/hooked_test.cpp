// Forward interposition: every way of calling a module, and every shape of arguments.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <map>
#include <tuple>

#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

ForwardHooks doubling(int& before, int& after) {
  return {[&before](TensorList inputs) {
            ++before;
            for (auto& input : inputs) input = input * 2;
            return inputs;
          },
          [&after](TensorList outputs) {
            ++after;
            return outputs;
          }};
}

TEST(HookedTest, EveryWayOfCalling) {
  run_ranks(1, [](const Rank&) {
    int before = 0, after = 0;
    Linear layer(2, 2);
    const auto x = values({3, 2}, 0);
    const auto expected = at::linear(2 * x, layer->weight, layer->bias);
    layer->add_forward_hooks(doubling(before, after));
    EXPECT_TRUE(at::equal(layer(x), expected));
    EXPECT_TRUE(at::equal(layer->forward(x), expected));
    torch::nn::Sequential sequential(layer);
    EXPECT_TRUE(at::equal(sequential->forward(x), expected));
    torch::nn::AnyModule any(layer);
    EXPECT_TRUE(at::equal(any.forward(x), expected));
    EXPECT_EQ(before, 4);
    EXPECT_EQ(after, 4);
  });
}

using Nested =
    std::tuple<at::Tensor, std::vector<at::Tensor>, std::map<std::string, std::optional<at::Tensor>>>;
struct StructuredImpl : torch::nn::Module {
  Nested forward(Nested input, int64_t times, const std::optional<at::Tensor>& maybe) {
    std::get<0>(input) = std::get<0>(input) * times + maybe.value_or(at::zeros({1}));
    return input;
  }
};
FSDP_HOOKED_MODULE(Structured, StructuredImpl);

TEST(HookedTest, TensorsInsideOtherTypes) {
  run_ranks(1, [](const Rank&) {
    int before = 0, after = 0;
    Structured module;
    module->add_forward_hooks(doubling(before, after));
    const auto one = at::ones({1});
    const auto [a, b, c] = module(Nested{one, {one, one}, {{"k", one}, {"none", std::nullopt}}}, 3, one);
    EXPECT_EQ(a.item<float>(), 2 * 3 + 2);
    EXPECT_EQ(b.at(1).item<float>(), 2);
    EXPECT_EQ(c.at("k")->item<float>(), 2);
    EXPECT_EQ(before + after, 2);
  });
}

template <class T>
struct OfAnyImpl : torch::nn::Module {
  T forward(T input) { return input; }
};
using OfTwoImpl = OfAnyImpl<std::pair<at::Tensor, at::Tensor>>;
FSDP_HOOKED_MODULE(OfTwo, OfTwoImpl);

TEST(HookedTest, MessagesShowThePlainClass) {
  run_ranks(1, [](const Rank&) {
    EXPECT_EQ(c10::str(*Mlp(std::vector<int64_t>{2, 3})),
              "Mlp(\n  (layer0): torch::nn::Linear(in_features=2, out_features=3, bias=true)\n)");
    EXPECT_EQ(c10::str(*OfTwo()), "OfAnyImpl<std::pair<at::Tensor, at::Tensor> >");
  });
}

TEST(HookedTest, LastBeforeRunsFirstAndLastAfterLast) {
  run_ranks(1, [](const Rank&) {
    std::string order;
    const auto note = [&order](char name) {
      return ForwardHooks{[&order, name](TensorList inputs) { return order += name, inputs; },
                          [&order, name](TensorList outputs) { return order += name, outputs; }};
    };
    Linear layer(2, 2);
    layer->add_forward_hooks(note('a'));
    layer->add_forward_hooks(note('b'));
    layer(at::ones({1, 2}));
    EXPECT_EQ(order, "baab");
  });
}

TEST(HookedTest, WhoFailsIsToldInPlaceOfAfter) {
  run_ranks(1, [](const Rank&) {
    std::string order;
    Linear layer(2, 2);
    layer->add_forward_hooks({[&order](TensorList inputs) { return order += "before ", inputs; },
                              [&order](TensorList outputs) { return order += "after ", outputs; },
                              [&order] { order += "failed "; }});
    layer->add_forward_hooks(
        {[](TensorList inputs) { return inputs; }, [](TensorList outputs) { return outputs; }});
    EXPECT_THROW(layer(at::ones({1, 3})), c10::Error);
    EXPECT_EQ(order, "before failed ");
    layer(at::ones({1, 2}));
    EXPECT_EQ(order, "before failed before after ");
  });
}

TEST(HookedTest, AdaptersOfOtherFamilies) {
  struct Own : torch::nn::Module {
    std::vector<ForwardHooks> slots;
  };
  run_ranks(1, [](const Rank& rank) {
    register_forward_hook_adapter([](torch::nn::Module& module, const ForwardHooks& hooks) {
      auto* own = dynamic_cast<Own*>(&module);
      if (own) own->slots.push_back(hooks);
      return own != nullptr;
    });
    const auto module = std::make_shared<Own>();
    module->register_parameter("p", at::ones({4}));
    fully_shard(std::shared_ptr<torch::nn::Module>(module), {.mesh = rank.mesh()});
    ASSERT_EQ(module->slots.size(), 1U);
    EXPECT_EQ(module->slots[0].before({at::ones({1})}).size(), 1U);
    EXPECT_EQ(FSDPModule::of(*module).sharded_state(), ShardedState::unsharded);
  });
}

}  // namespace
}  // namespace fsdp::testing
