// The rarer moments of a state: first forward, and the end of a backward.
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include <map>
#include <set>

#include "fsdp/errors.hpp"
#include "fsdp/state.hpp"

namespace fsdp {
// Whoever runs forward first is the root of all sharded modules below it.
void FSDPState::lazy_init() {
  if (is_root_) return;
  const auto modules = this->modules();
  if (modules.size() > 1) {
    std::string text;
    for (const auto& module : modules) text += (text.empty() ? "(" : ", ") + c10::str(*module);
    throw RuntimeError("FSDP requires a single root module but got " + text + ")");
  }
  const auto& root = *modules.front();
  std::set<FSDPState*> seen;
  std::vector<std::shared_ptr<FSDPState>> states;
  for (const auto& entry : root.named_modules("", /*include_self=*/true)) {
    const auto state = of(*entry.value());
    if (!state || !seen.insert(state.get()).second) continue;
    if (state.get() != this && state->is_root_) {
      throw RuntimeError("FSDP state has already been lazily initialized for " + entry.key() +
                         "\nFSDP requires running forward through the root module first");
    }
    states.push_back(state);
  }
  for (const auto& state : states) {
    state->is_root_ = state.get() == this;
    state->context_ = context_;
    if (state->group_) state->group_->set_context(context_->comm);
    context_->all_states.push_back(state);
  }
  if (group_) group_->unit().is_root = true;
  // The root's parameters would be freed and gathered again at once.
  if (group_ && auto_reshard_after_forward) group_->after_forward = ShardedState::unsharded;
  init_names(root);
  try {
    for (const auto& state : states) {
      if (state->group_) state->group_->lazy_init();
    }
  } catch (...) {
    // Not initialised after all: the user may materialise parameters, or correct dtypes, and run forward
    // again.
    for (const auto& state : states) state->is_root_.reset();
    context_->all_states.clear();
    throw;
  }
}

void FSDPState::init_names(const torch::nn::Module& root) {
  std::map<FSDPState*, std::string> names;
  for (const auto& entry : root.named_modules("", /*include_self=*/true)) {
    const auto state = of(*entry.value());
    if (!state) continue;
    const auto [name, first] = names.try_emplace(state.get(), entry.key());
    if (!first) name->second += ", " + entry.key();
  }
  for (const auto& [state, name] : names) {
    if (state->group_) state->group_->set_name(name);
  }
  for (const auto& entry : root.named_parameters()) {
    const auto [state, index] = of_parameter(entry.value());
    if (state) state->group_->params()[index]->set_name(entry.key());
  }
}

void FSDPState::queue_final_callback() {
  if (context_->post_backward_final_callback_queued) return;
  context_->post_backward_final_callback_queued = true;
  torch::autograd::Engine::get_default_engine().queue_callback([context = context_] {
    std::vector<std::shared_ptr<FSDPState>> states;
    for (const auto& weak : context->all_states) {
      if (auto state = weak.lock()) states.push_back(std::move(state));
    }
    for (const auto& state : states) {
      // The inputs of a unit need not require a gradient: then nothing has called it yet.
      if (state->group_ && state->group_->training_state() != TrainingState::post_backward)
        state->group_->post_backward();
      state->training_state_ = state->seams_.reshard->once_done();
      if (state->group_) state->group_->set_training_state(TrainingState::idle);
    }
    if (context->is_last_backward) {
      for (const auto& state : states) state->finalize_backward();
      context->comm->post_forward_order.clear();
    }
    if (context->comm->reducing) context->comm->reducing->wait_for_reduction();
    context->post_backward_final_callback_queued = false;
  });
}

void FSDPState::finalize_backward() {
  if (!modules_to_run_forward_.empty()) {
    TORCH_WARN(
        modules_to_run_forward_.size(), " of the ", modules_.size(),
        " modules passed to fully_shard did not run forward before backward, which is error-prone since FSDP "
        "post-forward/pre-backward logic will not run for these modules. We recommend passing only modules "
        "that run "
        "forward together.");
    modules_to_run_forward_.clear();
  }
  if (group_) group_->finalize_backward();
}

// An exception ended the last backward, so its final callback never came.
void FSDPState::abandon_backward(StateContext& context) {
  for (const auto& weak : context.all_states) {
    const auto state = weak.lock();
    if (!state) continue;
    state->training_state_ = TrainingState::idle;
    if (state->group_) state->group_->abandon_backward();
  }
  context.comm->post_forward_order.clear();
  context.post_backward_final_callback_queued = false;
}

}  // namespace fsdp
