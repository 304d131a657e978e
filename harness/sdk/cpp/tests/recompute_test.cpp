#include "harness/sdk/cpp/recompute.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace fsdp_cts::sdk {
namespace {

struct Square {
  at::Tensor weight = at::tensor({2.f, 3.f}).set_requires_grad(true);
  int runs = 0;
  Tensors operator()(Tensors inputs) {
    ++runs;
    const at::Tensor product = inputs.at(0) * weight;
    return {product * product};
  }
};

TEST(Recompute, GivesTheGradientsOfOneRunAndRunsAgainInBackward) {
  Square plain, checkpointed;
  at::Tensor x = at::tensor({1.f, 5.f}).set_requires_grad(true),
             y = x.detach().clone().set_requires_grad(true);
  plain({x}).at(0).sum().backward();
  const Tensors outputs = recomputed([&](Tensors inputs) { return checkpointed(std::move(inputs)); }, {y});
  EXPECT_EQ(checkpointed.runs, 1);
  outputs.at(0).sum().backward();
  EXPECT_EQ(checkpointed.runs, 2);
  EXPECT_TRUE(at::equal(x.grad(), y.grad()));
  EXPECT_TRUE(at::equal(plain.weight.grad(), checkpointed.weight.grad()));
}

TEST(Recompute, FindsWhatHasChangedSince) {
  Square checkpointed;
  const at::Tensor x = at::ones({2});
  const Tensors outputs = recomputed([&](Tensors inputs) { return checkpointed(std::move(inputs)); }, {x});
  checkpointed.weight.set_data(at::tensor({7.f, 7.f}));  // as a unit that was freed and gathered anew
  outputs.at(0).sum().backward();
  EXPECT_TRUE(at::equal(checkpointed.weight.grad(), at::full({2}, 14.f)));
}

TEST(Recompute, WithoutGradientsOrRegionsOthersSaveAsBefore) {
  Square square;
  {
    const c10::AutoGradMode no_grad(false);
    recomputed([&](Tensors inputs) { return square(std::move(inputs)); }, {at::ones({2})});
  }
  EXPECT_EQ(square.runs, 1);
  square({at::ones({2})}).at(0).sum().backward();
  EXPECT_TRUE(at::equal(square.weight.grad(), at::tensor({4.f, 6.f})));
  EXPECT_EQ(square.runs, 2);
}

TEST(Recompute, RefusesARunThatSavesSomethingElse) {
  const at::Tensor weight = at::ones({2}).set_requires_grad(true);
  int runs = 0;
  const Tensors outputs = recomputed(
      [&](Tensors inputs) {
        const at::Tensor product = inputs.at(0) * weight;
        return ++runs == 1 ? Tensors{product * product} : Tensors{product};
      },
      {at::ones({2})});
  EXPECT_THROW(outputs.at(0).sum().backward(), std::logic_error);
}

}  // namespace
}  // namespace fsdp_cts::sdk
