#include "tests/flat_models.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace fsdp::testing {

SlotLinearImpl::SlotLinearImpl(int64_t in, int64_t out, bool with_bias) {
  weight = register_parameter("weight", at::zeros({out, in}));
  if (with_bias) bias = register_parameter("bias", at::zeros({out}));
}

at::Tensor SlotLinearImpl::forward(const at::Tensor& input) {
  input_dtypes.push_back(input.scalar_type());
  const auto* w = parameters_.find("weight");
  const auto* b = parameters_.find("bias");
  return at::linear(input, w ? *w : weight, b ? *b : bias);
}

TwoLinearsImpl::TwoLinearsImpl(bool bias1) {
  lin1 = register_module("lin1", SlotLinear(5, 5, bias1));
  lin2 = register_module("lin2", SlotLinear(5, 7));
}

at::Tensor TwoLinearsImpl::forward(const at::Tensor& input) {
  return lin2(lin1(input).relu());
}

TiedImpl::TiedImpl() {
  outer = register_module("outer", SlotLinear(4, 4));
  inner = register_module("inner", SlotLinear(4, 4));
  inner->slot("weight") = outer->slot("weight");
}

at::Tensor TiedImpl::forward(const at::Tensor& input) {
  return inner(outer(input));
}

void add_mean_gradients(const torch::nn::Module& whole, int64_t world,
                        const std::function<at::Tensor(int64_t rank)>& loss) {
  const auto parameters = whole.parameters();
  std::vector<at::Tensor> before, sums(parameters.size());
  for (const auto& parameter : parameters) before.push_back(parameter.grad());
  for (int64_t rank = 0; rank < world; ++rank) {
    zero_grad(whole);
    loss(rank).backward();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& gradient = parameters[i].grad();
      if (gradient.defined()) sums[i] = sums[i].defined() ? sums[i] + gradient : gradient.clone();
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto& gradient = parameters[i].mutable_grad();
    gradient = before[i];
    if (!sums[i].defined()) continue;
    const auto mean = sums[i] / world;
    gradient = before[i].defined() ? before[i] + mean : mean;
  }
}

flat::OriginalParameter seen(const torch::nn::Module& root, const std::string& name) {
  for (const auto& parameter : flat::named_original_parameters(root)) {
    if (parameter.name == name) return parameter;
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

void expect_whole_parameters(const torch::nn::Module& model, const torch::nn::Module& whole) {
  auto scope = flat::FullyShardedDataParallel::summon_full_params(model, {.writeback = false});
  const auto actual = model.named_parameters(), expected = whole.named_parameters();
  ASSERT_EQ(actual.keys(), expected.keys());
  for (const auto& entry : expected) {
    EXPECT_TRUE(at::equal(actual[entry.key()], entry.value())) << entry.key();
  }
  scope.leave();
}

void step_exposed(const torch::nn::Module& model, double lr) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) {
    if (!parameter.mutable_grad().defined()) continue;
    EXPECT_EQ(parameter.sizes(), parameter.mutable_grad().sizes());
    parameter.add_(parameter.mutable_grad(), -lr);
  }
}

void PrintTo(const CollectiveCount& count, std::ostream* out) {
  *out << count.forward_gathers << " + " << count.backward_gathers << " all-gathers, " << count.scatters
       << " reduce-scatters, " << count.all_reduces << " all-reduces";
}

CollectiveCount collectives(const Rank& rank) {
  CollectiveCount count;
  for (const auto& event : rank.trace->take()) {
    switch (event.kind) {
      case CollectiveKind::all_gather:
        ++(event.site.phase == Phase::backward ? count.backward_gathers : count.forward_gathers);
        break;
      case CollectiveKind::reduce_scatter:
        ++count.scatters;
        break;
      case CollectiveKind::all_reduce:
        ++count.all_reduces;
        break;
      case CollectiveKind::broadcast:
        break;
    }
  }
  return count;
}

}  // namespace fsdp::testing
