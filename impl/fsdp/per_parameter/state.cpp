#include "per_parameter/state.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <set>
#include <utility>

#include "base/storage.hpp"
#include "base/unit_registry.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

void cast_floating_point(TensorList& tensors, std::optional<at::ScalarType> dtype) {
  if (!dtype) return;
  for (auto& tensor : tensors) {
    if (tensor.is_floating_point() && tensor.scalar_type() != *dtype) tensor = tensor.to(*dtype);
  }
}

std::shared_ptr<FSDPState> typed(std::shared_ptr<void> state) {
  return std::static_pointer_cast<FSDPState>(std::move(state));
}

bool in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

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

FSDPState::FSDPState(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                     MixedPrecisionPolicy policy, bool auto_reshard_after_forward_)
    : auto_reshard_after_forward(auto_reshard_after_forward_),
      modules_(modules.begin(), modules.end()),
      policy_(std::move(policy)) {}

FSDPState::~FSDPState() {
  group_.reset();  // before what its unsharded memory leaves behind is released
  if (UnitRegistry::instance().drop_expired()) release_kept_memory();
}

std::shared_ptr<FSDPState> FSDPState::of(const torch::nn::Module& module) {
  return typed(UnitRegistry::instance().state_of(Engine::per_parameter, module));
}

std::pair<std::shared_ptr<FSDPState>, size_t> FSDPState::of_parameter(const at::Tensor& parameter) {
  auto [state, index] = UnitRegistry::instance().owner_of(Engine::per_parameter, parameter);
  return {typed(std::move(state)), index};
}

std::vector<std::shared_ptr<torch::nn::Module>> FSDPState::modules() const {
  std::vector<std::shared_ptr<torch::nn::Module>> alive;
  for (const auto& module : modules_) {
    if (auto locked = module.lock()) alive.push_back(std::move(locked));
  }
  return alive;
}

void FSDPState::install_hooks() {
  const auto modules = this->modules();
  for (size_t i = 0; i < modules.size(); ++i) {
    // The module owns its hooks and through them the state, never the other way round.
    install_forward_hooks(*modules[i], {[self = shared_from_this()](TensorList inputs) {
                                          return self->run_before(std::move(inputs));
                                        },
                                        [self = shared_from_this(), i](TensorList outputs) {
                                          return self->run_after(i, std::move(outputs));
                                        },
                                        [self = shared_from_this()] {
                                          if (self->active_) self->failed_forward();
                                        }});
  }
}

void FSDPState::activate(std::unique_ptr<FSDPParamGroup> group, at::Device device) {
  group_ = std::move(group);
  device_ = device;
  active_ = true;
  auto& registry = UnitRegistry::instance();
  for (const auto& module : modules()) registry.add(Engine::per_parameter, module, weak_from_this());
  for (size_t i = 0; group_ && i < group_->params().size(); ++i)
    registry.add(Engine::per_parameter, group_->params()[i]->parameter(), weak_from_this(), i);
}

bool FSDPState::recomputes() const {
  return training_state_ == TrainingState::pre_backward && in_backward();
}

// With several modules the first to run gathers for all of them, the last to end reshards. Some of them that run again
// in backward are no half of the next forward.
TensorList FSDPState::run_before(TensorList inputs) {
  if (!active_) return inputs;
  if (modules_.size() == 1 || recomputes()) return pre_forward(std::move(inputs));
  const bool first = modules_to_run_forward_.empty();
  if (first) {
    for (size_t i = 0; i < modules_.size(); ++i) modules_to_run_forward_.insert(i);
  }
  return first ? pre_forward(std::move(inputs)) : inputs;
}

TensorList FSDPState::run_after(size_t module, TensorList outputs) {
  if (!active_) return outputs;
  if (modules_.size() == 1 || recomputes()) return post_forward(std::move(outputs));
  modules_to_run_forward_.erase(module);
  if (modules_to_run_forward_.empty()) return post_forward(std::move(outputs));
  register_pre_backward_hooks(outputs);  // a loss may reach this module, and not the last one
  return outputs;
}

TensorList FSDPState::pre_forward(TensorList inputs) {
  // The pre-backward hook has gathered, unless a backward through another forward of this unit has freed since.
  if (recomputes()) {
    if (group_ && group_->sharded_state() != ShardedState::unsharded) {
      group_->unshard();
      group_->wait_for_unshard();
    }
    return inputs;
  }
  leave_failed_backward();
  training_state_ = TrainingState::forward;
  root_pre_forward(inputs);
  if (policy_.cast_forward_inputs) cast_floating_point(inputs, policy_.param_dtype);
  if (group_) {
    group_->pre_forward();
    register_post_backward_hook(inputs);
  }
  for (const auto& weak : states_to_forward_prefetch) {
    if (const auto target = weak.lock(); target && target->group_)
      target->group_->prefetch(TrainingState::forward);
  }
  return inputs;
}

TensorList FSDPState::post_forward(TensorList outputs) {
  if (training_state_ == TrainingState::pre_backward) return outputs;
  if (group_) group_->post_forward(!in_backward());
  register_pre_backward_hooks(outputs);
  training_state_ = TrainingState::idle;
  if (context_->iter_forward_root == this) {
    context_->iter_forward_root = nullptr;
    context_->comm->free_copied_out();
    if (!at::GradMode::is_enabled()) wait_for_copies_from_host();
  }
  cast_floating_point(outputs, policy_.output_dtype);
  return outputs;
}

// No backward follows that would.
void FSDPState::wait_for_copies_from_host() {
  for (const auto& weak : context_->all_states) {
    if (const auto state = weak.lock(); state && state->group_) state->group_->wait_for_copies_from_host();
  }
}

// What it gathered has the values of this moment, and the next forward may come after a step. Whoever is the outermost
// does it for all; a forward that is recomputed in backward is backward's affair.
void FSDPState::failed_forward() {
  if (in_backward() || (context_->iter_forward_root && context_->iter_forward_root != this)) return;
  context_->iter_forward_root = nullptr;
  for (const auto& weak : context_->all_states) {
    const auto state = weak.lock();
    if (!state) continue;
    state->training_state_ = TrainingState::idle;
    state->modules_to_run_forward_.clear();
    if (state->group_) state->group_->abandon_forward();
  }
  context_->comm->free_copied_out();
}

void FSDPState::root_pre_forward(TensorList& inputs) {
  lazy_init();
  // The root's own forward is never inside another one, even if an earlier one of a unit's modules never ended it.
  if (context_->iter_forward_root && context_->iter_forward_root != this && !is_root()) return;
  context_->iter_forward_root = this;
  wait_for_shards();
  for (auto& input : inputs) {
    if (input.device() != device_) input = input.to(device_);
  }
}

// Gathers run beside compute, and what they read was written before, on the current stream: by the optimizer's step
// above all. Here, once, and not at each gather, which would wait for the unit before as well.
void FSDPState::wait_for_shards() {
  const auto& streams = context_->comm->streams;
  if (!streams.copy_in) return;
  if (const auto event = std::exchange(context_->post_optim_event, std::nullopt)) {
    streams.gathers_wait_event(*event);
    return;
  }
  streams.gathers_wait_current();
  note_shards_awaited();
}

void FSDPState::set_post_optim_event(std::shared_ptr<c10::Event> event) {
  if (device_.is_cpu()) return;
  context_->post_optim_event = StreamEvent(std::move(event), device_);
  note_shards_awaited();  // whoever writes one from now on is not behind the event
}

void FSDPState::note_shards_awaited() const {
  for (const auto& weak : context_->all_states) {
    if (const auto state = weak.lock(); state && state->group_) state->group_->shards_awaited();
  }
}

void FSDPState::pre_backward() {
  training_state_ = TrainingState::pre_backward;
  queue_final_callback();
  if (group_) group_->pre_backward(states_to_backward_prefetch.empty());
  for (const auto& weak : states_to_backward_prefetch) {
    if (const auto target = weak.lock(); target && target->group_)
      target->group_->prefetch(TrainingState::pre_backward);
  }
}

void FSDPState::post_backward() {
  if (group_) group_->post_backward();
}

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
  context_->comm->streams = CommStreams(device_);
  for (const auto& state : states) {
    state->is_root_ = state.get() == this;
    state->context_ = context_;
    if (state->group_) state->group_->set_context(context_->comm);
    context_->all_states.push_back(state);
  }
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
      state->training_state_ = TrainingState::idle;
      if (state->group_) state->group_->set_training_state(TrainingState::idle);
    }
    context->iter_forward_root = nullptr;  // a unit of which only some modules ran has not ended its forward
    if (context->is_last_backward) {
      for (const auto& state : states) state->finalize_backward();
      context->comm->post_forward_order.clear();
      context->comm->free_scatter_input();
    } else {
      for (const auto& state : states) {
        if (state->group_ && state->group_->offloads()) state->group_->wait_for_reduction();
      }
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

void FSDPState::leave_failed_backward() {
  if (in_backward() || !context_->post_backward_final_callback_queued) return;
  for (const auto& weak : context_->all_states) {
    const auto state = weak.lock();
    if (!state) continue;
    state->training_state_ = TrainingState::idle;
    if (state->group_) state->group_->abandon_backward();
  }
  context_->iter_forward_root = nullptr;
  context_->comm->post_forward_order.clear();
  context_->comm->free_scatter_input();
  context_->post_backward_final_callback_queued = false;
}

}  // namespace fsdp
