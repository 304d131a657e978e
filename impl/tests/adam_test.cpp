// Adam and AdamW against the same steps written out in scalars, rounding in the same places.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fsdp/optim.hpp"
#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

/// Python's order of operations in single precision. lerp(a, b, w) is a + w * (b - a) for w < 1/2; a fused
/// multiply-add may round once less, hence the tolerance of one unit in the last place.
struct Scalar {
  float p, m = 0, v = 0;
  void step(float g, int64_t t, const optim::AdamOptions& o) {
    if (o.decoupled_weight_decay) {
      p *= static_cast<float>(1 - o.lr * o.weight_decay);
    } else {
      g += p * static_cast<float>(o.weight_decay);
    }
    m += static_cast<float>(1 - o.beta1) * (g - m);
    v = v * static_cast<float>(o.beta2) + static_cast<float>(1 - o.beta2) * g * g;
    const double bc1 = 1 - std::pow(o.beta1, t), bc2 = 1 - std::pow(o.beta2, t);
    const float denominator = std::sqrt(v) / static_cast<float>(std::sqrt(bc2)) + static_cast<float>(o.eps);
    p += static_cast<float>(-o.lr / bc1) * m / denominator;
  }
};

class AdamTest : public ::testing::TestWithParam<bool> {};

TEST_P(AdamTest, StepsAsWrittenOut) {
  const bool decoupled = GetParam();
  run_ranks(1, [decoupled](const Rank&) {
    const auto parameter = values({7}, 1).set_requires_grad(true),
               idle = at::ones({2}).set_requires_grad(true);
    const optim::AdamOptions options{.lr = 1e-2, .weight_decay = 0.1, .decoupled_weight_decay = decoupled};
    optim::Adam adam({{{parameter, idle}, options}});
    std::vector<Scalar> scalars;
    for (int64_t i = 0; i < 7; ++i) scalars.push_back({parameter[i].item<float>()});
    for (int64_t t = 1; t <= 5; ++t) {
      parameter.mutable_grad() = values({7}, 10 * t);
      adam.step();
      for (int64_t i = 0; i < 7; ++i) {
        scalars[i].step(values({7}, 10 * t)[i].item<float>(), t, options);
        EXPECT_NEAR(parameter[i].item<float>(), scalars[i].p, 1e-6) << "step " << t << " element " << i;
      }
    }
    EXPECT_EQ(adam.state(parameter)->step, 5);
    EXPECT_EQ(adam.state(idle), nullptr) << "no gradient, no step";
    EXPECT_TRUE(at::equal(idle.detach(), at::ones({2})));
    adam.zero_grad(false);
    EXPECT_EQ(parameter.grad().abs().sum().item<float>(), 0);
    adam.zero_grad();
    EXPECT_FALSE(parameter.mutable_grad().defined());
  });
}

INSTANTIATE_TEST_SUITE_P(Decay, AdamTest, ::testing::Bool());

TEST(AdamOnShards, TrainsAsOnTheWhole) {
  run_ranks(4, [](const Rank& rank) {
    Mlp model(std::vector<int64_t>{5, 7, 3}, true), reference(std::vector<int64_t>{5, 7, 3}, true);
    initialize(*model);
    initialize(*reference);
    shard(model, {.mesh = rank.mesh()});
    optim::Adam adam({{model->parameters(), {.lr = 1e-2}}}), whole({{reference->parameters(), {.lr = 1e-2}}});
    const auto input = [](int64_t r) { return values({4, 5}, r); };
    for (int step = 0; step < 3; ++step) {
      adam.zero_grad();
      model(input(rank.rank)).sum().backward();
      average_gradients(reference, 4, [&](int64_t r) { return reference(input(r)).sum(); });
      adam.step();
      whole.step();
      for (size_t i = 0; i < reference->parameters().size(); ++i) {
        EXPECT_TRUE(at::allclose(full_values(*model)[i], reference->parameters()[i].detach(), 1e-6, 1e-7))
            << i;
      }
    }
    EXPECT_EQ(adam.state(model->layers[0]->weight)->exp_avg.sizes(), model->layers[0]->weight.sizes());
  });
}

}  // namespace
}  // namespace fsdp::testing
