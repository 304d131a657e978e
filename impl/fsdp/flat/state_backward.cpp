// A unit's backward: from the first gradient of an output to the reduced gradient in the optimizer's hands.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "fsdp/flat/execution_order.hpp"
#include "fsdp/flat/state.hpp"

namespace fsdp::flat {
namespace {

/// Hands gradients through, and says when those of all inputs are there.
class InputsDone : public torch::autograd::Node {
 public:
  InputsDone(torch::autograd::edge_list&& next, std::function<void()> done)
      : Node(std::move(next)), done_(std::move(done)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    done_();
    return std::move(gradients);
  }
  std::string name() const override { return "FsdpInputsDone"; }

 private:
  std::function<void()> done_;
};

void divide(const at::Tensor& tensor, double divisor) {
  at::Tensor divided = tensor;
  if (divisor > 1) divided.div_(divisor);
}

}  // namespace

void FlatState::register_pre_backward_hooks(const TensorList& outputs) {
  if (!at::GradMode::is_enabled()) return;
  const int64_t hooks = seams_.hook->on_output(unit_);
  needs_pre_backward_unshard_ = false;
  ran_pre_backward_ = false;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    for (int64_t hook = 0; hook < hooks; ++hook) {
      output.register_hook([weak = weak_from_this()](const at::Tensor&) {
        if (const auto state = weak.lock()) state->pre_backward();
      });
      ++counters.pre_backward_registrations;
    }
    needs_pre_backward_unshard_ = flat_ != nullptr;
  }
}

// Frozen parameters receive no gradient that would tell the end of the unit's backward.
void FlatState::register_reshard_only_hook(TensorList& inputs) {
  if (!at::GradMode::is_enabled() || reshard_only_registered_ || flat_->requires_grad()) return;
  torch::autograd::edge_list next;
  for (const auto& input : inputs) {
    if (input.requires_grad()) next.push_back(torch::autograd::impl::gradient_edge(input));
  }
  if (next.empty()) return;
  // Of several forwards the first is the last in backward.
  reshard_only_registered_ = true;
  const auto done = [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state) return;
    state->training_state_ = TrainingState::forward_backward;
    state->handle_state_ = HandleState::backward_post;
    state->post_backward_reshard();
  };
  const auto node =
      std::shared_ptr<InputsDone>(new InputsDone(std::move(next), done), torch::autograd::deleteNode);
  for (auto& input : inputs) {
    if (!input.requires_grad()) continue;
    auto passed_on = input.detach();
    torch::autograd::create_gradient_edge(passed_on, node);
    input = std::move(passed_on);
  }
}

void FlatState::pre_backward() {
  if (flat_ && ran_pre_backward_) return;
  queue_final_callback();
  training_state_ = TrainingState::forward_backward;
  if (!flat_) return;
  const at::NoGradGuard no_grad;
  handle_state_ = HandleState::backward_pre;
  if (needs_pre_backward_unshard_) {
    unshard(call_site(Phase::backward));
    wait_and_show();
  }
  needs_pre_backward_unshard_ = false;
  prefetch(HandleState::backward_pre);
  flat_->restore_gradient_precision();
  ran_pre_backward_ = true;
}

void FlatState::queue_final_callback() {
  if (context_->final_callback_queued) return;
  context_->final_callback_queued = true;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [context = context_] { finish_backward(*context); });
  for (const auto& weak : context_->all_states) {
    if (const auto state = weak.lock(); state && state->flat_) state->flat_->collect_gradients(false);
  }
}

void FlatState::post_backward(torch::autograd::variable_list gradients) {
  const at::NoGradGuard no_grad;
  queue_final_callback();
  training_state_ = TrainingState::forward_backward;
  handle_state_ = HandleState::backward_post;
  post_backward_called_ = true;
  post_backward_reshard();
  const auto computed_in = full_precision() ? flat_->original_dtype() : flat_->compute_dtype();
  if (!seams_.reduce->reduces(unit_, sync_gradients)) {
    flat_->accumulate_whole_gradient(gradients, computed_in, 1);
    flat_->expose_gradients();
    return;
  }
  if (context_->reducing) context_->reducing->wait_for_reduction();
  const auto dtype = full_precision() ? flat_->original_dtype() : flat_->reduce_dtype();
  const auto before = seams_.reduce->division(unit_.ranks * unit_.replicas).before;
  const bool divided = flat_->accumulate_whole_gradient(gradients, dtype, before);
  gradients.clear();
  reduce(dtype, divided ? 1 : before);
}

void FlatState::post_backward_reshard() {
  reshard(seams_.reshard->frees_after_backward(unit_, sync_gradients));
  prefetch(HandleState::backward_post);
}

void FlatState::reduce(at::ScalarType dtype, double divisor) {
  if (seams_.before_reduce) seams_.before_reduce(unit_);
  Reduction reduction;
  reduction.input = flat_->take_whole_gradient(dtype);
  divide(reduction.input, divisor);
  const auto site = call_site(Phase::backward);
  if (flat_->sharded_strategy()) {
    reduction.output = at::empty({flat_->layout().shard_numel}, reduction.input.options());
    reduction.work = ranks_.shard->reduce_scatter(reduction.output, reduction.input, {}, site);
  } else {
    reduction.output = reduction.input;
    reduction.work = ranks_.shard->all_reduce(reduction.output, {}, site);
  }
  reducing_ = std::move(reduction);
  context_->reducing = this;
}

void FlatState::wait_for_reduction() {
  if (!reducing_) return;
  const at::NoGradGuard no_grad;
  if (context_->reducing == this) context_->reducing = nullptr;
  auto reduction = std::move(*reducing_);
  reducing_.reset();
  reduction.work->wait();
  if (ranks_.replicate)
    ranks_.replicate->all_reduce(reduction.output, {}, call_site(Phase::backward))->wait();
  divide(reduction.output, seams_.reduce->division(unit_.ranks * unit_.replicas).after);
  flat_->accept_reduced_gradient(std::move(reduction.output));
  flat_->expose_gradients();
}

void FlatState::finish_backward(StateContext& context) {
  std::vector<std::shared_ptr<FlatState>> states;
  for (const auto& weak : context.all_states) {
    if (auto state = weak.lock()) states.push_back(std::move(state));
  }
  if (context.reducing) context.reducing->wait_for_reduction();
  context.first_iteration = false;
  context.post_forward_order.clear();
  if (context.order_check) context.order_check->next_iteration();
  for (const auto& state : states) state->finalize();
  context.final_callback_queued = false;
}

void FlatState::finalize() {
  if (flat_) {
    const at::NoGradGuard no_grad;
    // An output was used, so this unit was gathered, but its gradients never came.
    if (flat_->shown() != Shown::sharded || prefetched_) {
      handle_state_ = HandleState::backward_post;
      reshard(seams_.reshard->frees_after_backward(unit_, sync_gradients));
    }
    if (sync_gradients && post_backward_called_ && mixed_precision_.keep_low_precision_grads &&
        !full_precision())
      flat_->lower_gradient_precision();
    post_backward_called_ = false;
  }
  training_state_ = seams_.reshard->after_backward();
  handle_state_ = HandleState::idle;
  ran_pre_backward_ = false;
  needs_pre_backward_unshard_ = false;
  prefetched_ = false;
  reshard_only_registered_ = false;
  post_forward_index_.reset();
}

// An exception ended the last backward, so its final callback never came.
void FlatState::abandon_backward(StateContext& context) {
  for (const auto& weak : context.all_states) {
    if (const auto state = weak.lock()) state->reducing_.reset();  // its result is not used
  }
  context.reducing = nullptr;
  finish_backward(context);
}

}  // namespace fsdp::flat
