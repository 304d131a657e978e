#include "harness/sdk/cpp/optimizer.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace fsdp_cts::sdk {
namespace {

at::Tensor parameter(const std::vector<float>& values) {
  return at::tensor(values).set_requires_grad(true);
}

void expect_bits(const at::Tensor& actual, const std::vector<float>& expected) {
  EXPECT_TRUE(at::equal(actual.detach(), at::tensor(expected))) << actual << "\nwhere this was expected:\n"
                                                                << at::tensor(expected);
}

// Seven steps, as the numbers below were made with PyTorch 2.11's own optimizers (foreach=False, one thread):
// the gradient of step i is {0.1, -0.7, 1.3, 0.003, 2.1} * (i + 1) / 3.
at::Tensor after_seven_steps(const Json& verb, std::unique_ptr<Optimizer>& optimizer) {
  at::Tensor p = parameter({0.3f, -1.7f, 2.9f, 0.011f, -0.5f});
  optimizer = make_optimizer(verb, {{"p", p}});
  for (int i = 0; i < 7; ++i) {
    p.mutable_grad() = at::tensor({0.1f, -0.7f, 1.3f, 0.003f, 2.1f}) * (i + 1) / 3;
    optimizer->step();
  }
  return p;
}

class PythonRounding : public testing::Test {
 protected:
  // Without fused multiply-add the kernels round otherwise, in Python as here.
  void SetUp() override {
    if (std::string(at::get_cpu_capability()).substr(0, 3) != "AVX")
      GTEST_SKIP() << "the numbers were made on a CPU with AVX2";
  }
  std::unique_ptr<Optimizer> optimizer;
};

TEST_F(PythonRounding, Sgd) {
  const at::Tensor p =
      after_seven_steps({{"kind", "SGD"}, {"lr", 0.01}, {"momentum", 0.9}, {"weight_decay", 0.1}}, optimizer);
  expect_bits(p, {0x1.13735cp-2f, -0x1.7dfcf2p+0f, 0x1.428b48p+1f, 0x1.487708p-7f, -0x1.fd7ccap-1f});
  ASSERT_EQ(optimizer->state().size(), 1u);
  EXPECT_EQ(optimizer->state()[0].name, "momentum_buffer");
  expect_bits(optimizer->state()[0].value,
              {0x1.d709e4p-1f, -0x1.8eea1cp+2f, 0x1.6e29dcp+3f, 0x1.d5265cp-6f, 0x1.f9a95cp+3f});
}

TEST_F(PythonRounding, Adam) {
  const at::Tensor p = after_seven_steps({{"kind", "Adam"}, {"lr", 0.01}, {"weight_decay", 0.1}}, optimizer);
  expect_bits(p, {0x1.d7e9b8p-3f, -0x1.a171dp+0f, 0x1.6a54dp+1f, -0x1.e35354p-5f, -0x1.22cbf8p-1f});
  ASSERT_EQ(optimizer->state().size(), 2u);
  expect_bits(optimizer->state()[0].value,
              {0x1.73868ep-4f, -0x1.3fd658p-1f, 0x1.25f1eap+0f, 0x1.1f337p-10f, 0x1.95e06p+0f});
  expect_bits(optimizer->state()[1].value,
              {0x1.b633b6p-13f, 0x1.46bf6ep-7f, 0x1.148482p-5f, 0x1.08616ep-25f, 0x1.1009e2p-4f});
}

TEST_F(PythonRounding, AdamW) {
  const Json verb = {
      {"kind", "AdamW"}, {"lr", 0.01}, {"betas", {0.8, 0.99}}, {"eps", 1e-6}, {"weight_decay", 0.1}};
  const at::Tensor p = after_seven_steps(verb, optimizer);
  expect_bits(p, {0x1.d03892p-3f, -0x1.9ded16p+0f, 0x1.677dbap+1f, -0x1.edd2f6p-5f, -0x1.22afc8p-1f});
  expect_bits(optimizer->state()[0].value,
              {0x1.0610f6p-3f, -0x1.ca9dacp-1f, 0x1.a9db8cp+0f, 0x1.f72acap-9f, 0x1.57f64p+1f});
  expect_bits(optimizer->state()[1].value,
              {0x1.921f94p-10f, 0x1.33e02cp-4f, 0x1.0976d6p-2f, 0x1.7298ccp-20f, 0x1.5a5c3p-1f});
}

TEST(Optimizer, AdamsFirstStepIsTheLearningRateWhateverTheGradient) {
  // m / (1 - b1) = g and sqrt(v / (1 - b2)) = |g| after one step.
  at::Tensor p = parameter({1.f, 1.f});
  const auto optimizer =
      make_optimizer({{"kind", "Adam"}, {"lr", 0.5}, {"match", nullptr}, {"betas", nullptr}}, {{"p", p}});
  p.mutable_grad() = at::tensor({1e-3f, -40.f});
  optimizer->step();
  EXPECT_NEAR(p[0].item<float>(), 0.5, 1e-4);
  EXPECT_NEAR(p[1].item<float>(), 1.5, 1e-4);
}

TEST(Optimizer, WithoutAGradientNothingMovesAndNoStepIsCounted) {
  at::Tensor used = parameter({1.f}), unused = parameter({1.f});
  const auto optimizer =
      make_optimizer({{"kind", "Adam"}, {"lr", 0.5}}, {{"used", used}, {"unused", unused}});
  for (int i = 0; i < 3; ++i) {
    used.mutable_grad() = at::ones({1});
    optimizer->step();
  }
  EXPECT_EQ(unused.item<float>(), 1);
  EXPECT_EQ(optimizer->state().size(), 2u);
  // Its first step is a first step, however late: bias correction with t = 1.
  unused.mutable_grad() = at::ones({1});
  optimizer->step();
  EXPECT_NEAR(unused.item<float>(), 0.5, 1e-4);
}

TEST(Optimizer, ZeroGradZeroesOrDrops) {
  at::Tensor p = parameter({1.f});
  const auto optimizer = make_optimizer({{"kind", "SGD"}, {"lr", 1.0}}, {{"p", p}});
  p.mutable_grad() = at::ones({1});
  optimizer->zero_grad(false);
  EXPECT_EQ(p.grad().item<float>(), 0);
  optimizer->zero_grad(true);
  EXPECT_FALSE(p.grad().defined());
}

TEST(Optimizer, TheFirstGroupThatMatchesDecidesAndUnmatchedOnesStay) {
  at::Tensor weight = parameter({1.f}), bias = parameter({1.f}), other = parameter({1.f}),
             skipped = parameter({1.f});
  const Json groups =
      Json::array({{{"match", "weight"}, {"lr", 0.25}}, {{"match", "weight|bias"}, {"lr", 0.5}}});
  const auto optimizer = make_optimizer(
      {{"kind", "SGD"}, {"lr", 1.0}, {"match", "^net"}, {"groups", groups}},
      {{"net.weight", weight}, {"net.bias", bias}, {"net.other", other}, {"head.weight", skipped}});
  for (at::Tensor* p : {&weight, &bias, &other, &skipped}) p->mutable_grad() = at::ones({1});
  optimizer->step();
  EXPECT_EQ(weight.item<float>(), 0.75);
  EXPECT_EQ(bias.item<float>(), 0.5);
  EXPECT_EQ(other.item<float>(), 1);
  EXPECT_EQ(skipped.item<float>(), 1);
}

TEST(Optimizer, AmsgradKeepsTheLargestSecondMomentAndDividesByIt) {
  const Json plain = {{"kind", "Adam"}, {"lr", 1.0}, {"betas", {0.5, 0.75}}};
  Json amsgrad = plain;
  amsgrad["amsgrad"] = true;
  std::vector<at::Tensor> trained;
  for (const Json& verb : {plain, amsgrad}) {
    at::Tensor p = parameter({0});
    const auto optimizer = make_optimizer(verb, {{"p", p}});
    for (const float gradient : {4.0f, 0.0f}) {
      p.mutable_grad() = at::tensor({gradient});
      optimizer->step();
    }
    trained.push_back(p.detach());
    const std::vector<Optimizer::State> state = optimizer->state();
    ASSERT_EQ(state.size(), verb.contains("amsgrad") ? 3u : 2u);
    EXPECT_EQ(state[1].value.item<float>(), 3);  // 0.25 * 16, and three quarters of it
    if (state.size() == 3) {
      EXPECT_EQ(state[2].name, "max_exp_avg_sq");
      EXPECT_EQ(state[2].value.item<float>(), 4);
    }
  }
  EXPECT_GT(trained[1].item<float>(), trained[0].item<float>());  // a smaller step down
}

TEST(Optimizer, UnknownKindsAreRefused) {
  EXPECT_THROW(make_optimizer({{"kind", "Lion"}, {"lr", 1.0}}, {}), std::invalid_argument);
}

TEST(Optimizer, SgdKnowsNoAmsgrad) {
  EXPECT_THROW(make_optimizer({{"kind", "SGD"}, {"lr", 1.0}, {"amsgrad", true}}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace fsdp_cts::sdk
