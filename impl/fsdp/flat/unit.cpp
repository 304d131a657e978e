#include "flat/unit.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/unit_registry.hpp"
#include "flat/execution_order.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/wrap/module_tree.hpp"

namespace fsdp::flat {
namespace {

std::shared_ptr<FlatState> typed(std::shared_ptr<void> state) {
  return std::static_pointer_cast<FlatState>(std::move(state));
}

bool in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

bool switched_on(const char* name) {
  const char* value = std::getenv(name);
  return value && std::string(value) == "1";
}

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

void require_expected_device(const FlatParameter& flat, const FSDPOptions& options, at::Device compute) {
  const auto device = flat.shard().tensor().device();
  if (options.cpu_offload && !device.is_cpu()) {
    throw RuntimeError("An FSDP-managed module with parameter CPU offloading enabled has parameters on " +
                       device.str() +
                       ". Make sure to not move the module from CPU when offloading parameters.");
  }
  if (!options.cpu_offload && device.type() != compute.type()) {
    throw RuntimeError("An FSDP-managed module unexpectedly has parameters on " + device.str() +
                       ". Make sure to move the module to " + compute.str() + " before training.");
  }
}

void require_homogeneous(const char* name, const std::set<bool>& values) {
  if (values.size() > 1)
    throw InvalidArgument(std::string("Expects one homogeneous value for ") + name +
                          " but got {False, True}");
}

}  // namespace

Division division_for(int64_t ranks) {
  int64_t before = 1;
  while (ranks % before == 0 && ranks > before * before) before *= 2;
  return {static_cast<double>(before), static_cast<double>(ranks) / static_cast<double>(before)};
}

Division FlatState::division() const {
  if (comm_hook) return {};  // its own affair
  return division_for(unit_.ranks * unit_.replicas);
}

bool FlatState::frees_after_forward() const {
  // The root's parameters are the first that backward needs.
  return !unit_.is_root &&
         (unit_.strategy == ShardingStrategy::full_shard || unit_.strategy == ShardingStrategy::hybrid_shard);
}

bool FlatState::frees_after_backward() const {
  if (unit_.strategy == ShardingStrategy::no_shard) return false;
  return sync_gradients || unit_.strategy == ShardingStrategy::full_shard ||
         unit_.strategy == ShardingStrategy::hybrid_shard;
}

// Whether parameters stay whole to the eye between forward and backward.
bool FlatState::keeps_views_after_forward() const {
  return unit_.strategy == ShardingStrategy::shard_grad_op ||
         unit_.strategy == ShardingStrategy::hybrid_shard_zero2;
}

FlatState::FlatState(const std::shared_ptr<torch::nn::Module>& module, FSDPOptions options, Ranks ranks,
                     bool composable)
    : module_(module),
      options_(std::move(options)),
      mixed_precision_(options_.mixed_precision.value_or(MixedPrecision{})),
      ranks_(std::move(ranks)),
      device_(options_.device_id.value_or(ranks_.shard->device())),
      full_precision_in_eval_(switched_on("FSDP_USE_FULL_PREC_IN_EVAL")),
      skip_writeback_check_(switched_on("FSDP_SKIP_WRITEBACK_CHECK")) {
  unit_.strategy = options_.sharding_strategy;
  unit_.rank = ranks_.shard->rank();
  unit_.ranks = ranks_.shard->size();
  unit_.replicas = ranks_.replicate ? ranks_.replicate->size() : 1;
  unit_.is_composable = composable;
  // A module that ignores itself, or one around it, would keep itself alive through its hooks.
  for (const auto& ignored : options_.ignored_modules.value_or(options_.ignored_state_modules))
    ignored_modules_.push_back(ignored);
  options_.ignored_modules.reset();
  options_.ignored_state_modules.clear();
}

ModuleList FlatState::ignored_modules() const {
  ModuleList result;
  for (const auto& weak : ignored_modules_) {
    if (auto module = weak.lock()) result.push_back(std::move(module));
  }
  return result;
}

FlatState::~FlatState() {
  if (context_->reducing == this) context_->reducing = nullptr;
  std::erase(context_->pre_forward_order, this);
  std::erase(context_->post_forward_order, this);
  UnitRegistry::instance().drop_expired();
}

std::shared_ptr<FlatState> FlatState::of(const torch::nn::Module& module) {
  return typed(UnitRegistry::instance().state_of(Engine::flat, module));
}

std::pair<std::shared_ptr<FlatState>, size_t> FlatState::of_parameter(const at::Tensor& parameter) {
  auto [state, index] = UnitRegistry::instance().owner_of(Engine::flat, parameter);
  return {typed(std::move(state)), index};
}

std::vector<std::shared_ptr<FlatState>> FlatState::all_under(const torch::nn::Module& root) {
  std::vector<std::shared_ptr<FlatState>> states;
  for (const auto& [name, module] : pre_order(const_cast<torch::nn::Module&>(root).shared_from_this())) {
    if (auto state = of(*module)) states.push_back(std::move(state));
  }
  return states;
}

std::shared_ptr<torch::nn::Module> FlatState::require_module() const {
  auto module = module_.lock();
  if (!module) throw InvalidState("The module of this FSDP handle no longer exists.");
  return module;
}

void FlatState::install_hooks() {
  // The module owns its hooks and through them the state, never the other way round.
  install_forward_hooks(*module(), {[self = shared_from_this()](TensorList inputs) {
                                      return self->active_ ? self->pre_forward(std::move(inputs)) : inputs;
                                    },
                                    [self = shared_from_this()](TensorList outputs) {
                                      return self->active_ ? self->post_forward(std::move(outputs)) : outputs;
                                    },
                                    [self = shared_from_this()] {
                                      if (self->active_) self->failed_forward();
                                    }});
}

void FlatState::activate(const std::vector<MemberPlan>& members) {
  if (!members.empty()) {
    FlatShard::Settings settings;
    settings.strategy = unit_.strategy;
    settings.rank = unit_.rank;
    settings.ranks = unit_.ranks;
    settings.use_orig_params = options_.use_orig_params;
    settings.mixed_precision = mixed_precision_;
    settings.group = ranks_.shard;
    settings.unit = weak_from_this();
    settings.module = module_;
    settings.skip_writeback_check = skip_writeback_check_;
    // Without offload shards and wholes are in one place: where the parameters are, or are moved to later.
    settings.compute_device = options_.cpu_offload ? device_ : members.front().parameter.device();
    settings.cpu_offload = options_.cpu_offload;
    flat_ = std::make_unique<FlatParameter>(
        members, std::move(settings),
        [this](torch::autograd::variable_list gradients) { post_backward(std::move(gradients)); });
  }
  active_ = true;
  auto& registry = UnitRegistry::instance();
  registry.add(Engine::flat, module(), weak_from_this());
  for (size_t i = 0; i < members.size(); ++i)
    registry.add(Engine::flat, members[i].parameter, weak_from_this(), i);
}

bool FlatState::full_precision() const {
  if (!flat_) return false;
  const auto& shard = flat_->shard();
  if (!shard.low_precision_compute() && shard.reduce_dtype() == shard.original_dtype()) return false;
  if (handle_state_ == HandleState::summon_full_params) return true;
  const auto module = module_.lock();
  return full_precision_in_eval_ && module && !module->is_training();
}

void FlatState::unshard(const CallSite& site) {
  if (flat_->gathered_ahead(full_precision())) return;
  if (handle_state_ == HandleState::summon_full_params && flat_->shown() == Shown::kept) show_sharded();
  flat_->writeback().take_over();
  // A summon scope's user works with what it gathers, and has made what it reads, on the current stream.
  const bool in_pass = handle_state_ != HandleState::summon_full_params;
  if (!in_pass || !context_->streams.unshard) return flat_->unshard(full_precision(), site, {});
  if (!flat_->is_gathered(full_precision())) {
    wait_for_writes();
    if (options_.limit_all_gathers) context_->free_events.wait_for_oldest_at_limit();
  }
  flat_->unshard(full_precision(), site, context_->streams);
}

// Of an optimizer that stepped without a forward of the root, of a user, of a load. Without any there is nothing to wait
// for: a gather that waited for the current stream would not run beside it.
void FlatState::wait_for_writes() {
  const auto version = flat_->shard().version();
  if (awaited_version_ == version) return;
  context_->streams.gathers_wait_current();
  awaited_version_ = version;
}

void FlatState::wait_and_show() {
  flat_->wait_for_unshard();
  // Parts of the graph in forward and backward, so that gradients reach the flat parameter; leaves while
  // summoned.
  const bool tensors = handle_state_ == HandleState::forward || handle_state_ == HandleState::backward_pre;
  // The views that forward left in place are the ones that autograd saved.
  if (flat_->shown() == Shown::kept && handle_state_ == HandleState::backward_pre) return;
  // Without original parameters backward needs the memory only: nobody looks at the windows.
  if (in_pass() && (options_.use_orig_params || handle_state_ == HandleState::forward))
    ++(tensors ? counters.unsharded_views_as_tensors : counters.unsharded_views_as_params);
  flat_->show_unsharded(tensors ? Shown::tensors : Shown::params);
}

void FlatState::show_sharded() {
  if (in_pass() && options_.use_orig_params && !flat_->shard().sharded())
    ++counters.unsharded_views_as_params;
  flat_->show_sharded();
}

void FlatState::reshard(bool free) {
  const bool keeps = options_.use_orig_params && handle_state_ == HandleState::forward &&
                     at::GradMode::is_enabled() && keeps_views_after_forward();
  if (keeps) {
    flat_->keep_unsharded_views();
  } else {
    show_sharded();
  }
  // A copy of what is never sharded, in low precision or on a device, is as short-lived as a gathered one.
  if ((free || !flat_->shard().sharded()) && flat_->free_unsharded() && options_.limit_all_gathers)
    context_->free_events.freed(device_);
  flat_->wait_for_copies_from_host();
}

void FlatState::cast_inputs(TensorList& inputs, bool wanted) const {
  if (!wanted || !mixed_precision_.param_dtype) return;
  const auto dtype = *mixed_precision_.param_dtype;
  for (auto& input : inputs) {
    if (input.is_floating_point() && input.scalar_type() != dtype) input = input.to(dtype);
  }
}

TensorList FlatState::pre_forward(TensorList inputs) {
  // Forward is being recomputed for activation checkpointing, with what backward has gathered.
  if (flat_ && handle_state_ == HandleState::backward_pre && in_backward()) return inputs;
  leave_failed_backward();
  lazy_init();
  if (is_root()) {
    root_pre_forward(inputs);
  } else if (!context_->root_in_forward) {
    // A part called alone gathers what a step may just have written, and optimizers write through data(), which no
    // version counts.
    context_->streams.gathers_wait_current();
  }
  const auto module = module_.lock();
  const bool low_precision_wanted = module && (module->is_training() || !full_precision_in_eval_);
  // A composable unit casts its inputs as a root does, wherever it stands.
  const bool as_root = mixed_precision_.cast_root_forward_inputs && (unit_.is_root || unit_.is_composable);
  cast_inputs(inputs, as_root && low_precision_wanted && !full_precision());

  training_state_ = TrainingState::forward_backward;
  if (!flat_) return inputs;
  handle_state_ = HandleState::forward;
  record_pre_forward();
  unshard(call_site(Phase::forward));
  forward_expected_ = false;
  wait_and_show();
  if (at::GradMode::is_enabled() && flat_->catches_gradients()) ++counters.post_backward_registrations;
  prefetch(HandleState::forward);
  cast_inputs(inputs, mixed_precision_.cast_forward_inputs && !full_precision());
  register_reshard_only_hook(inputs);
  return inputs;
}

TensorList FlatState::post_forward(TensorList outputs) {
  if (flat_ && handle_state_ == HandleState::backward_pre) return outputs;
  if (flat_) {
    record_post_forward();
    reshard(frees_after_forward());
  }
  register_pre_backward_hooks(outputs);
  training_state_ = TrainingState::idle;
  handle_state_ = HandleState::idle;
  if (is_root()) context_->root_in_forward = false;
  return outputs;
}

// What it gathered has the values of this moment, and the next forward may come after a step. The root does it for all;
// a forward that is recomputed in backward is backward's affair.
void FlatState::failed_forward() {
  if (in_backward() || (context_->root_in_forward && !is_root())) return;
  context_->root_in_forward = false;
  for (const auto& weak : context_->all_states) {
    if (const auto state = weak.lock()) state->abandon_forward();
  }
}

void FlatState::abandon_forward() {
  training_state_ = TrainingState::idle;
  forward_expected_ = false;
  if (flat_ && (flat_->shown() != Shown::sharded || flat_->is_gathered())) flat_->shard_changed();
}

void FlatState::root_pre_forward(TensorList& inputs) {
  context_->root_in_forward = true;
  switch_buffers();
  for (const auto& weak : context_->all_states) {
    const auto state = weak.lock();
    if (!state || !state->flat_) continue;
    if (options_.forward_prefetch) state->forward_expected_ = true;
    // Gathered for a unit that then did not run; the parameters may have changed since.
    if (state->flat_->gathered_ahead()) state->flat_->shard_changed();
    state->flat_->writeback().take_over_gradients();
    if (context_->streams.unshard) state->awaited_version_ = state->flat_->shard().version();
  }
  // Once, and not at each gather, which would come after the unit before it as well.
  context_->streams.gathers_wait_current();
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
  auto& index = round_.post_forward_index;
  if (!index || *index == 0) index = static_cast<int64_t>(context_->post_forward_order.size());
  context_->post_forward_order.push_back(this);
}

void FlatState::prefetch(HandleState pass) {
  FlatState* target = nullptr;
  const auto pick = [&](const std::vector<FlatState*>& order, int64_t index) {
    if (index >= 0 && index < static_cast<int64_t>(order.size())) target = order[static_cast<size_t>(index)];
  };
  if (pass == HandleState::forward) {
    if (!options_.forward_prefetch || !pre_forward_index_) return;
    pick(context_->pre_forward_order, *pre_forward_index_ + 1);
    if (!target || !target->forward_expected_ || target->flat_->gathered_ahead()) return;
  } else {
    const auto wanted =
        pass == HandleState::backward_pre ? BackwardPrefetch::backward_pre : BackwardPrefetch::backward_post;
    if (options_.backward_prefetch != wanted || !round_.post_forward_index) return;
    pick(context_->post_forward_order, *round_.post_forward_index - 1);
    if (!target || target->round_.backward != Backward::expected || target->flat_->gathered_ahead()) return;
  }
  const auto before =
      std::exchange(target->handle_state_, pass == HandleState::forward ? pass : HandleState::backward_pre);
  target->unshard(target->call_site(pass == HandleState::forward ? Phase::forward : Phase::backward));
  target->handle_state_ = before;
  target->flat_->mark_gathered_ahead();
}

// Backward: from the first gradient of an output to the reduced gradient in the optimizer's hands.

void FlatState::register_pre_backward_hooks(const TensorList& outputs) {
  if (!at::GradMode::is_enabled()) return;
  round_.backward = Backward::not_expected;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    output.register_hook([weak = weak_from_this()](const at::Tensor&) {
      if (const auto state = weak.lock()) state->pre_backward();
    });
    ++counters.pre_backward_registrations;
    if (flat_) round_.backward = Backward::expected;
  }
}

// Frozen parameters receive no gradient that would tell the end of the unit's backward.
void FlatState::register_reshard_only_hook(TensorList& inputs) {
  if (!at::GradMode::is_enabled() || round_.reshard_only_hooked || flat_->shard().requires_grad()) return;
  torch::autograd::edge_list next;
  for (const auto& input : inputs) {
    if (input.requires_grad()) next.push_back(torch::autograd::impl::gradient_edge(input));
  }
  if (next.empty()) return;
  round_.reshard_only_hooked = true;
  const auto done = [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state) return;
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
  if (round_.backward == Backward::begun) return;
  queue_final_callback();
  training_state_ = TrainingState::forward_backward;
  if (!flat_) return;
  const at::NoGradGuard no_grad;
  handle_state_ = HandleState::backward_pre;
  if (round_.backward == Backward::expected) {
    unshard(call_site(Phase::backward));
    wait_and_show();
  }
  round_.backward = Backward::begun;
  prefetch(HandleState::backward_pre);
}

void FlatState::queue_final_callback() {
  if (context_->final_callback_queued) return;
  context_->final_callback_queued = true;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [context = context_] { finish_backward(*context); });
  for (const auto& weak : context_->all_states) {
    if (const auto state = weak.lock(); state && state->flat_)
      state->flat_->writeback().take_over_gradients();
  }
}

void FlatState::post_backward(torch::autograd::variable_list gradients) {
  const at::NoGradGuard no_grad;
  queue_final_callback();
  training_state_ = TrainingState::forward_backward;
  handle_state_ = HandleState::backward_post;
  round_.gradients_came = true;
  post_backward_reshard();
  const auto& shard = flat_->shard();
  auto& gradient = flat_->gradient();
  if (!sync_gradients) {
    gradient.accumulate(gradients, full_precision() ? shard.original_dtype() : shard.compute_dtype(), 1);
    gradient.expose();
    return;
  }
  if (context_->reducing) context_->reducing->wait_for_reduction();
  const bool waited = gradient.whole().defined();  // in no_sync()
  auto whole = copy_in(std::move(gradients));
  // What is being reduced must not be taken for a gradient of the user's, if a forward is recomputed meanwhile.
  if (waited) gradient.expose();
  const auto& stream = context_->streams.post_backward;
  const auto beside = stream.use();
  reduce(std::move(whole));
  if (!stream) return;
  const auto reduced = StreamEvent::record(device_);
  context_->reduce_inputs.read = reduced;
  if (waited) context_->copy_in_inputs.read = reduced;
  wait_for_reduction();
}

at::Tensor FlatState::copy_in(torch::autograd::variable_list gradients) {
  const auto& shard = flat_->shard();
  auto& gradient = flat_->gradient();
  const auto& stream = context_->streams.pre_reduce;
  context_->copy_in_inputs.release();
  stream.wait_current();
  const auto beside = stream.use();
  // What is never sharded is the result, too.
  const auto keep = [&](KeptTensors& until_read, const at::Tensor& whole) {
    (shard.sharded() ? until_read.tensors : context_->used_by_reductions).push_back(whole);
  };
  if (stream) {
    context_->copy_in_inputs.tensors = gradients;
    if (gradient.whole().defined()) keep(context_->copy_in_inputs, gradient.whole());
  }
  const auto dtype = full_precision() ? shard.original_dtype() : shard.reduce_dtype();
  const auto before = division().before;
  const bool divided = gradient.accumulate(gradients, dtype, before);
  gradients.clear();
  auto whole = gradient.take_whole(dtype);
  divide(whole, divided ? 1 : before);
  if (stream) {
    context_->copy_in_inputs.read = StreamEvent::record(device_);
    // Only now, so that a copy-in does not wait for the reduction before it.
    context_->reduce_inputs.release();
    keep(context_->reduce_inputs, whole);
    context_->streams.post_backward.wait_current();
  }
  return whole;
}

void FlatState::post_backward_reshard() {
  reshard(frees_after_backward());
  prefetch(HandleState::backward_post);
}

void FlatState::reduce(at::Tensor whole) {
  Reduction reduction;
  reduction.input = std::move(whole);
  const auto site = call_site(Phase::backward);
  const bool sharded = flat_->shard().sharded();
  reduction.output =
      sharded ? at::empty({flat_->shard().layout().shard_numel}, reduction.input.options()) : reduction.input;
  if (comm_hook)
    comm_hook(reduction.input, sharded ? reduction.output : at::Tensor());
  else if (sharded)
    reduction.work = ranks_.shard->reduce_scatter(reduction.output, reduction.input, {}, site);
  else
    reduction.work = ranks_.shard->all_reduce(reduction.output, {}, site);
  reducing_ = std::move(reduction);
  context_->reducing = this;
}

void FlatState::wait_for_reduction() {
  if (!reducing_) return;
  const at::NoGradGuard no_grad;
  if (context_->reducing == this) context_->reducing = nullptr;
  auto reduction = std::move(*reducing_);
  reducing_.reset();
  if (reduction.work) reduction.work->wait();
  const auto replicas = ranks_.replicate ? context_->streams.all_reduce : SideStream();
  replicas.wait_current();
  if (replicas) context_->used_by_reductions.push_back(reduction.output);
  const auto beside = replicas.use();
  if (ranks_.replicate)
    ranks_.replicate->all_reduce(reduction.output, {}, call_site(Phase::backward))->wait();
  divide(reduction.output, division().after);
  flat_->gradient().accept_reduced(std::move(reduction.output));
  flat_->gradient().expose();
}

void FlatState::finish_backward(StateContext& context) {
  std::vector<std::shared_ptr<FlatState>> states;
  for (const auto& weak : context.all_states) {
    if (auto state = weak.lock()) states.push_back(std::move(state));
  }
  if (context.reducing) context.reducing->wait_for_reduction();
  context.streams.current_waits_reductions();
  // They wait for nothing more; pre_reduce waits for the current stream before it uses its memory again.
  context.copy_in_inputs.release();
  context.reduce_inputs.release();
  context.used_by_reductions.clear();
  context.first_iteration = false;
  context.post_forward_order.clear();
  if (context.order_check) context.order_check->next_iteration();
  for (const auto& state : states) state->finalize();
  context.final_callback_queued = false;
}

void FlatState::finalize() {
  if (flat_) {
    const at::NoGradGuard no_grad;
    // Forward or backward gathered this unit, but its gradients never came. What is left gathered would be
    // taken for the parameters of the next forward.
    if (flat_->shown() != Shown::sharded || flat_->is_gathered()) reshard(frees_after_backward());
    if (flat_->gradient().finish_arrival()) flat_->gradient().expose();
    if (sync_gradients && round_.gradients_came && mixed_precision_.keep_low_precision_grads &&
        !full_precision())
      flat_->gradient().lower_precision();
  }
  training_state_ = TrainingState::idle;
  handle_state_ = HandleState::idle;
  round_ = {};
}

void FlatState::leave_failed_backward() {
  if (in_backward() || !context_->final_callback_queued) return;
  for (const auto& weak : context_->all_states) {
    const auto state = weak.lock();
    if (!state) continue;
    state->reducing_.reset();  // its result is not used, nor what has come of others on the way to the host
    if (state->flat_) state->flat_->gradient().drop_arrival();
    state->round_.gradients_came = false;  // what was reduced is what the program has made of it since
  }
  context_->reducing = nullptr;
  finish_backward(*context_);
}

// First forward: who is root, and buffers of another dtype.

// Whoever runs forward first is the root of all units below it.
void FlatState::lazy_init() {
  if (is_root_) return;
  const auto module = module_.lock();
  std::vector<std::shared_ptr<FlatState>> states;
  std::vector<std::string> names;
  for (const auto& [name, below] : pre_order(module)) {
    if (auto state = of(*below)) {
      states.push_back(std::move(state));
      names.push_back(name);
    }
  }
  std::set<bool> use_orig_params, limit_all_gathers, full_precision_in_eval;
  for (const auto& state : states) {
    if (state->flat_) {
      state->flat_->follow_moves();
      require_expected_device(*state->flat_, state->options_, state->device_);
    }
    use_orig_params.insert(state->options_.use_orig_params);
    limit_all_gathers.insert(state->options_.limit_all_gathers);
    full_precision_in_eval.insert(state->full_precision_in_eval_);
    if (state.get() != this && state->is_root()) {
      throw InvalidState(
          "Non-root FSDP instance's `_is_root` should not have been set yet or should have been set to "
          "`False`");
    }
  }
  require_homogeneous("_use_orig_params", use_orig_params);
  require_homogeneous("limit_all_gathers", limit_all_gathers);
  require_homogeneous("_use_full_prec_in_eval", full_precision_in_eval);

  const bool hybrid =
      std::ranges::any_of(states, [](const auto& state) { return state->ranks_.replicate != nullptr; });
  context_->streams = FlatStreams(device_, hybrid);
  std::vector<FlatState*> with_parameters;
  for (size_t i = 0; i < states.size(); ++i) {
    auto& state = *states[i];
    state.is_root_ = &state == this;
    state.context_ = context_;
    state.unit_.is_root = state.is_root();
    state.unit_.name = names[i];
    if (state.flat_) with_parameters.push_back(&state);
    context_->all_states.push_back(states[i]);
  }
  if (ExecutionOrderCheck::wanted())
    context_->order_check = std::make_shared<ExecutionOrderCheck>(std::move(with_parameters), ranks_.shard);
  init_buffers(states);
}

// Each buffer goes by the innermost unit above it.
void FlatState::init_buffers(const std::vector<std::shared_ptr<FlatState>>& states) {
  const at::NoGradGuard no_grad;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    for (const auto& entry : (*state)->module()->named_buffers()) {
      const auto& buffer = entry.value();
      if (!buffer.defined() || !seen.insert(buffer.unsafeGetTensorImpl()).second) continue;
      if (buffer.device() != (*state)->device_) buffer.set_data(buffer.to((*state)->device_));
      const auto dtype = (*state)->mixed_precision_.buffer_dtype;
      if (!dtype || !buffer.is_floating_point() || buffer.scalar_type() == *dtype) continue;
      cast_buffers_.push_back({buffer, buffer.scalar_type()});
      low_buffer_dtypes_.push_back(*dtype);
      buffer.set_data(buffer.to(*dtype));
    }
  }
}

void FlatState::switch_buffers() {
  bool full = flat_ && full_precision();
  if (!flat_) {
    for (const auto& weak : context_->all_states) {
      if (const auto state = weak.lock()) full = full || state->full_precision();
    }
  }
  if (full == buffers_restored_) return;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < cast_buffers_.size(); ++i) {
    auto& [buffer, original] = cast_buffers_[i];
    buffer.set_data(buffer.to(full ? original : low_buffer_dtypes_[i]));
  }
  buffers_restored_ = full;
}

}  // namespace fsdp::flat
