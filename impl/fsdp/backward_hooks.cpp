// How a state learns that its backward begins and ends.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "fsdp/state.hpp"

namespace fsdp {
namespace {

/// Hands gradients through. It runs when the gradients of all inputs of a unit are complete: by then
/// autograd, which prefers gradient accumulation to everything else, has left the parameters' gradients too.
class PostBackward : public torch::autograd::Node {
 public:
  PostBackward(torch::autograd::edge_list&& next, std::weak_ptr<FSDPState> state)
      : Node(std::move(next)), state_(std::move(state)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (const auto state = state_.lock()) state->post_backward();
    return std::move(gradients);
  }
  std::string name() const override { return "FsdpPostBackward"; }

 private:
  std::weak_ptr<FSDPState> state_;
};

}  // namespace

void FSDPState::register_post_backward_hook(TensorList& inputs) {
  if (!at::GradMode::is_enabled()) return;
  torch::autograd::edge_list next;
  for (const auto& input : inputs) {
    if (input.requires_grad()) next.push_back(torch::autograd::impl::gradient_edge(input));
  }
  if (next.empty()) return;
  const auto node = std::shared_ptr<PostBackward>(new PostBackward(std::move(next), weak_from_this()),
                                                  torch::autograd::deleteNode);
  for (auto& input : inputs) {
    if (!input.requires_grad()) continue;
    auto passed_on = input.detach();
    torch::autograd::create_gradient_edge(passed_on, node);
    input = std::move(passed_on);
  }
  ++counters.post_backward;
}

void FSDPState::register_pre_backward_hooks(const TensorList& outputs) {
  if (!at::GradMode::is_enabled()) return;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    output.register_hook([weak = weak_from_this()](const at::Tensor&) {
      if (const auto state = weak.lock()) state->pre_backward();
    });
    ++counters.pre_backward;
  }
}

}  // namespace fsdp
