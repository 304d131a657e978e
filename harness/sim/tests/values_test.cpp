// What the device computes is what the CPU computes, bit for bit.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/add.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/modules.h>
#include <torch/optim/adam.h>

#include "harness/sim/tests/finding_text.hpp"

namespace fsdp_cts::sim {
namespace {

using ::testing::IsEmpty;

torch::nn::Sequential make_model() {
  at::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(16, 32), torch::nn::GELU(),
                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})),
                               torch::nn::Linear(32, 4));
}

std::vector<at::Tensor> trained_on(c10::Device device) {
  auto model = make_model();
  model->to(device);
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(0.01));
  const at::Tensor input = at::randn({8, 16}, at::make_generator<at::CPUGeneratorImpl>(7)).to(device);
  std::vector<at::Tensor> results;
  for (int step = 0; step < 3; ++step) {
    adam.zero_grad();
    const at::Tensor loss = model->forward(input).square().mean();
    loss.backward();
    adam.step();
    results.push_back(loss.detach().cpu());
  }
  for (const at::Tensor& parameter : model->parameters()) results.push_back(parameter.detach().cpu());
  return results;
}

TEST(Values, OfTrainingEqualTheCpus) {
  drain_findings();
  const std::uint64_t before = launches();
  const auto expected = trained_on(at::kCPU);
  EXPECT_EQ(launches(), before);
  const auto actual = trained_on(device_zero);
  EXPECT_GT(launches(), before);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(at::equal(actual[i], expected[i])) << i;
  EXPECT_THAT(found(), IsEmpty());
}

// Answers a tensor of the CPU, made of inputs that are the same whatever the device.
void expect_equal_on_both(const std::function<at::Tensor(c10::Device)>& compute) {
  const at::Tensor expected = compute(at::kCPU);
  const at::Tensor actual = compute(device_zero).cpu();
  EXPECT_TRUE(at::equal(actual, expected));
}

TEST(Values, OfAnOutputThatIsMadeToFitEqualTheCpus) {
  expect_equal_on_both([](c10::Device device) {
    at::Tensor out = at::empty({0}, device);
    at::add_out(out, at::ones({2, 3}, device), at::ones({3}, device));
    return out;
  });
}

TEST(Values, OfAttentionEqualTheCpus) {
  expect_equal_on_both([](c10::Device device) {
    at::manual_seed(3);
    const at::Tensor q = at::randn({2, 4, 8, 16}).to(device).requires_grad_();
    at::scaled_dot_product_attention(q, q, q).square().sum().backward();
    return q.grad();
  });
}

TEST(Values, OfConvolutionsEqualTheCpus) {
  expect_equal_on_both([](c10::Device device) {
    at::manual_seed(4);
    torch::nn::Conv2d layer(torch::nn::Conv2dOptions(3, 5, 3));
    layer->to(device);
    layer->forward(at::randn({2, 3, 8, 8}).to(device)).square().sum().backward();
    return layer->weight.grad();
  });
}

TEST(Values, OfNormsOverBatchesEqualTheCpus) {
  expect_equal_on_both([](c10::Device device) {
    at::manual_seed(5);
    torch::nn::BatchNorm1d layer(6);
    layer->to(device);
    layer->forward(at::randn({4, 6}).to(device)).square().sum().backward();
    return layer->running_mean + layer->weight.grad();
  });
}

TEST(Values, RandomNumbersAreTheCpus) {
  expect_equal_on_both([](c10::Device device) {
    at::manual_seed(6);
    return at::dropout(at::ones({100}, device), 0.5, true) + at::randn({100}, device);
  });
}

TEST(Values, AViewOfAnotherTypeStaysAView) {
  at::Tensor x = at::ones({4}, device_zero);
  x.view(at::kInt).zero_();
  EXPECT_TRUE(at::equal(x.cpu(), at::zeros({4})));
}

TEST(Values, AResizedTensorKeepsItsElements) {
  at::Tensor x = at::ones({4}, device_zero);
  x.resize_({8});
  EXPECT_TRUE(at::equal(x.narrow(0, 0, 4).cpu(), at::ones({4})));
}

}  // namespace
}  // namespace fsdp_cts::sim
