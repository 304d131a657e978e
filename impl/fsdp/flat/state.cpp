#include "fsdp/flat/state.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "fsdp/flat/execution_order.hpp"
#include "fsdp/wrap/module_tree.hpp"

namespace fsdp::flat {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<const torch::nn::Module*, std::weak_ptr<FlatState>> by_module;
  std::map<const c10::TensorImpl*, std::pair<std::weak_ptr<FlatState>, size_t>> by_parameter;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

bool in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

bool switched_on(const char* name) {
  const char* value = std::getenv(name);
  return value && std::string(value) == "1";
}

}  // namespace

FlatState::FlatState(const std::shared_ptr<torch::nn::Module>& module, FSDPOptions options, Ranks ranks,
                     Seams seams, bool composable)
    : module_(module),
      key_(module.get()),
      options_(std::move(options)),
      mixed_precision_(options_.mixed_precision.value_or(MixedPrecision{})),
      ranks_(std::move(ranks)),
      seams_(std::move(seams)),
      device_(options_.device_id.value_or(ranks_.shard->device())),
      full_precision_in_eval_(seams_.cast->full_precision_in_eval(switched_on("FSDP_USE_FULL_PREC_IN_EVAL"))),
      skip_writeback_check_(switched_on("FSDP_SKIP_WRITEBACK_CHECK")) {
  unit_.strategy = options_.sharding_strategy;
  unit_.rank = ranks_.shard->rank();
  unit_.ranks = ranks_.shard->size();
  unit_.replicas = ranks_.replicate ? ranks_.replicate->size() : 1;
  unit_.is_composable = composable;
}

FlatState::~FlatState() {
  if (context_->reducing == this) context_->reducing = nullptr;
  std::erase(context_->pre_forward_order, this);
  std::erase(context_->post_forward_order, this);
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().by_module, [](const auto& entry) { return entry.second.expired(); });
  std::erase_if(registry().by_parameter, [](const auto& entry) { return entry.second.first.expired(); });
}

std::shared_ptr<FlatState> FlatState::of(const torch::nn::Module& module) {
  const std::lock_guard lock(registry().mutex);
  const auto entry = registry().by_module.find(&module);
  return entry == registry().by_module.end() ? nullptr : entry->second.lock();
}

std::pair<std::shared_ptr<FlatState>, size_t> FlatState::of_parameter(const at::Tensor& parameter) {
  const std::lock_guard lock(registry().mutex);
  const auto entry = registry().by_parameter.find(parameter.unsafeGetTensorImpl());
  if (entry == registry().by_parameter.end()) return {nullptr, 0};
  return {entry->second.first.lock(), entry->second.second};
}

std::vector<std::shared_ptr<FlatState>> FlatState::all_under(const torch::nn::Module& root) {
  std::vector<std::shared_ptr<FlatState>> states;
  for (const auto& [name, module] : pre_order(const_cast<torch::nn::Module&>(root).shared_from_this())) {
    if (auto state = of(*module)) states.push_back(std::move(state));
  }
  return states;
}

void FlatState::install_hooks() {
  // The module owns its hooks and through them the state, never the other way round.
  install_forward_hooks(*module(), {[self = shared_from_this()](TensorList inputs) {
                                      return self->active_ ? self->pre_forward(std::move(inputs)) : inputs;
                                    },
                                    [self = shared_from_this()](TensorList outputs) {
                                      return self->active_ ? self->post_forward(std::move(outputs)) : outputs;
                                    }});
}

void FlatState::activate(const std::vector<MemberPlan>& members) {
  if (!members.empty()) {
    FlatParameter::Settings settings;
    settings.unit = unit_;
    settings.use_orig_params = options_.use_orig_params;
    settings.mixed_precision = mixed_precision_;
    settings.group = ranks_.shard;
    settings.seams = seams_;
    settings.module = module_;
    settings.skip_writeback_check = skip_writeback_check_;
    // Without offload shards and wholes are in one place: where the parameters are, or are moved to later.
    settings.compute_device = options_.cpu_offload ? device_ : members.front().parameter.device();
    flat_ = std::make_unique<FlatParameter>(
        members, std::move(settings),
        [this](torch::autograd::variable_list gradients) { post_backward(std::move(gradients)); });
  }
  active_ = true;
  const std::lock_guard lock(registry().mutex);
  registry().by_module[key_] = weak_from_this();
  for (size_t i = 0; i < members.size(); ++i)
    registry().by_parameter[members[i].parameter.unsafeGetTensorImpl()] = {weak_from_this(), i};
}

bool FlatState::full_precision() const {
  if (!flat_) return false;
  if (!flat_->low_precision_compute() && flat_->reduce_dtype() == flat_->original_dtype()) return false;
  if (handle_state_ == HandleState::summon_full_params) return true;
  const auto module = module_.lock();
  return full_precision_in_eval_ && module && !module->is_training();
}

void FlatState::unshard(const CallSite& site) {
  if (prefetched_) return;
  if (handle_state_ == HandleState::summon_full_params && flat_->keeps_views()) show_sharded();
  flat_->writeback();
  gathered_in_full_precision_ = full_precision();
  flat_->unshard(gathered_in_full_precision_, site);
}

void FlatState::wait_and_show() {
  flat_->wait_for_unshard(gathered_in_full_precision_);
  const bool tensors = seams_.hook->shows_tensors(
      unit_, handle_state_ == HandleState::forward || handle_state_ == HandleState::backward_pre);
  // The views that forward left in place are the ones that autograd saved.
  if (flat_->keeps_views() && handle_state_ == HandleState::backward_pre) return;
  // Without original parameters backward needs the memory only: nobody looks at the windows.
  if (in_pass() && (options_.use_orig_params || handle_state_ == HandleState::forward))
    ++(tensors ? counters.unsharded_views_as_tensors : counters.unsharded_views_as_params);
  flat_->show_unsharded(gathered_in_full_precision_, tensors ? Shown::tensors : Shown::params);
}

void FlatState::show_sharded() {
  if (in_pass() && options_.use_orig_params && !flat_->sharded_strategy())
    ++counters.unsharded_views_as_params;
  flat_->show_sharded();
}

void FlatState::reshard(bool free) {
  if (free && handle_state_ == HandleState::forward && seams_.before_free) seams_.before_free(unit_);
  const bool keeps = options_.use_orig_params && handle_state_ == HandleState::forward &&
                     at::GradMode::is_enabled() && seams_.reshard->keeps_views_after_forward(unit_);
  if (keeps) {
    flat_->keep_unsharded_views();
  } else {
    show_sharded();
  }
  // A copy of what is never sharded, in low precision or on a device, is as short-lived as a gathered one.
  if (free || !flat_->sharded_strategy()) flat_->free_unsharded(gathered_in_full_precision_);
  prefetched_ = false;
}

void FlatState::cast_inputs(TensorList& inputs, bool wanted) const {
  if (!wanted || !mixed_precision_.param_dtype) return;
  for (auto& input : inputs) input = seams_.cast->input(input, *mixed_precision_.param_dtype);
}

TensorList FlatState::pre_forward(TensorList inputs) {
  // Forward is being recomputed for activation checkpointing.
  if (flat_ && handle_state_ == HandleState::backward_pre && in_backward()) {
    unshard(call_site(Phase::backward));
    wait_and_show();
    return inputs;
  }
  if (!in_backward() && context_->final_callback_queued) abandon_backward(*context_);
  lazy_init();
  if (is_root()) root_pre_forward(inputs);
  const auto module = module_.lock();
  const bool low_precision_wanted = module && (module->is_training() || !full_precision_in_eval_);
  cast_inputs(inputs, seams_.cast->casts_as_root(unit_, mixed_precision_) && low_precision_wanted &&
                          !full_precision());

  training_state_ = TrainingState::forward_backward;
  if (!flat_) return inputs;
  handle_state_ = HandleState::forward;
  record_pre_forward();
  unshard(call_site(Phase::forward));
  needs_pre_forward_unshard_ = false;
  wait_and_show();
  if (at::GradMode::is_enabled() && flat_->catches_gradients()) ++counters.post_backward_registrations;
  prefetch(HandleState::forward);
  cast_inputs(inputs, seams_.cast->casts_inputs(unit_, mixed_precision_) && !full_precision());
  register_reshard_only_hook(inputs);
  return inputs;
}

TensorList FlatState::post_forward(TensorList outputs) {
  if (flat_ && handle_state_ == HandleState::backward_pre) return outputs;
  if (flat_) {
    record_post_forward();
    reshard(seams_.reshard->frees_after_forward(unit_));
  }
  register_pre_backward_hooks(outputs);
  training_state_ = TrainingState::idle;
  handle_state_ = HandleState::idle;
  return outputs;
}

void FlatState::root_pre_forward(TensorList& inputs) {
  switch_buffers();
  for (const auto& weak : context_->all_states) {
    const auto state = weak.lock();
    if (!state || !state->flat_) continue;
    if (options_.forward_prefetch) {
      state->needs_pre_forward_unshard_ = true;
      state->prefetched_ = false;
    }
    state->flat_->collect_gradients(false);
  }
  for (auto& input : inputs) {
    if (input.device() != device_) input = input.to(device_);
  }
}

void FlatState::record_pre_forward() {
  const auto module = module_.lock();
  if (context_->order_check && module && module->is_training())
    context_->order_check->record(*this, context_->first_iteration);
  if (!context_->first_iteration || pre_forward_index_) return;
  pre_forward_index_ = static_cast<int64_t>(context_->pre_forward_order.size());
  context_->pre_forward_order.push_back(this);
}

void FlatState::record_post_forward() {
  // PyTorch takes index 0 for none, so a unit that ended its forward first is entered anew when it runs
  // again.
  if (!post_forward_index_ || *post_forward_index_ == 0)
    post_forward_index_ = static_cast<int64_t>(context_->post_forward_order.size());
  context_->post_forward_order.push_back(this);
}

void FlatState::prefetch(HandleState pass) {
  FlatState* target = nullptr;
  const auto pick = [&](const std::vector<FlatState*>& order, std::optional<int64_t> index) {
    if (index && *index >= 0 && *index < static_cast<int64_t>(order.size()))
      target = order[static_cast<size_t>(*index)];
  };
  if (pass == HandleState::forward) {
    if (!options_.forward_prefetch || !pre_forward_index_) return;
    pick(context_->pre_forward_order, seams_.prefetch->in_forward(unit_, *pre_forward_index_));
    if (!target || !target->needs_pre_forward_unshard_ || target->prefetched_) return;
  } else {
    const auto wanted =
        pass == HandleState::backward_pre ? BackwardPrefetch::backward_pre : BackwardPrefetch::backward_post;
    if (seams_.prefetch->moment(unit_, options_.backward_prefetch) != wanted || !post_forward_index_) return;
    pick(context_->post_forward_order, seams_.prefetch->in_backward(unit_, *post_forward_index_));
    if (!target || !target->needs_pre_backward_unshard_ || target->prefetched_) return;
  }
  const auto before =
      std::exchange(target->handle_state_, pass == HandleState::forward ? pass : HandleState::backward_pre);
  target->unshard(target->call_site(pass == HandleState::forward ? Phase::forward : Phase::backward));
  target->handle_state_ = before;
  target->prefetched_ = true;
}

}  // namespace fsdp::flat
