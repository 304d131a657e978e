#include "per_parameter/param_group.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/python_text.hpp"
#include "base/storage.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {

CommStreams::CommStreams(at::Device device)
    : copy_in(device, "all_gather_copy_in_stream"),
      all_gather(device, "all_gather_stream"),
      reduce_scatter(device, "reduce_scatter_stream"),
      all_reduce(device, "all_reduce_stream") {}

// Every gather is behind its copy-in.

void CommStreams::gathers_wait_current() const {
  copy_in.wait_current();
}

void CommStreams::gathers_wait_event(const StreamEvent& event) const {
  copy_in.wait_event(event);
}

// What is gathered next may lie in the same memory.
void CommContext::free_copied_out() {
  if (!copied_out) return;
  streams.gathers_wait_event(copied_out->copied);
  copied_out.reset();
}

void CommContext::free_scatter_input() {
  std::exchange(scattered, {}).block_current();
  scatter_input.reset();
}

FSDPParamGroup::FSDPParamGroup(const std::vector<ManagedParameter>& parameters, GroupRanks ranks,
                               ShardedState after_forward_, MixedPrecisionPolicy policy,
                               std::optional<CPUOffloadPolicy> offload, ShardPlacementFn placement)
    : after_forward(after_forward_),
      ranks_(std::move(ranks)),
      policy_(std::move(policy)),
      offload_(ranks_.shard->device().is_cpu() ? std::nullopt : offload) {
  for (const auto& [parameter, name] : parameters) {
    const auto dim = placement ? placement(parameter).value_or(0) : 0;
    params_.push_back(
        std::make_unique<FSDPParam>(parameter, name, dim, ranks_.shard->rank(), ranks_.shard->size()));
  }
  const at::NoGradGuard no_grad;
  lay_out(params_.front()->parameter().device(), true);
}

FSDPParamGroup::~FSDPParamGroup() {
  if (context_->reducing == this) context_->reducing = nullptr;
  std::erase(context_->post_forward_order, this);
}

// Shards of one dtype share one buffer in group order: the all-gather then copies them in at once.
void FSDPParamGroup::lay_out(at::Device device, bool first) {
  if (offload_ && first && !device.is_meta()) device = at::kCPU;
  const bool pinned = offload_ && offload_->pin_memory && device.is_cpu();
  const auto dtype_of = [](const FSDPParam& param) { return param.parameter().scalar_type(); };
  std::vector<at::Tensor> pieces;
  for (size_t begin = 0; begin < params_.size();) {
    const auto dtype = dtype_of(*params_[begin]);
    size_t end = begin;
    int64_t numel = 0;
    for (; end < params_.size() && dtype_of(*params_[end]) == dtype; ++end)
      numel += params_[end]->padded_shard_numel();
    const auto buffer = at::empty({numel}, at::TensorOptions(device).dtype(dtype).pinned_memory(pinned));
    int64_t offset = 0;
    for (; begin < end; ++begin) {
      pieces.push_back(alias(buffer, offset, {params_[begin]->padded_shard_numel()}));
      offset += params_[begin]->padded_shard_numel();
    }
  }
  for (size_t i = 0; i < params_.size(); ++i)
    first ? params_[i]->shard_into(pieces[i]) : params_[i]->move_into(pieces[i]);
}

void FSDPParamGroup::adopt_replaced_parameters() {
  const auto replaced = [](const auto& param) { return param->was_replaced(); };
  if (std::none_of(params_.begin(), params_.end(), replaced)) return;
  auto device = offload_ ? at::Device(at::kCPU) : ranks_.shard->device();
  for (const auto& param : params_) {
    if (param->parameter().is_meta()) device = at::kMeta;
  }
  const at::NoGradGuard no_grad;
  lay_out(device, false);
  shards_written();
  lazily_initialized_ = false;
}

void FSDPParamGroup::materialize(at::Device device) {
  const at::NoGradGuard no_grad;
  lay_out(device, false);
}

void FSDPParamGroup::require_parameters_on_cpu() const {
  std::string elsewhere;
  for (const auto& param : params_) {
    const auto device = param->parameter().device();
    if (device.is_cpu() || device.is_meta()) continue;
    elsewhere += (elsewhere.empty() ? "('" : ", ('") + param->name() + "', " + python_text(device) + ")";
  }
  if (elsewhere.empty()) return;
  throw RuntimeError(
      "FSDP parameters should be materialized on CPU when enabling CPU offloading. For example, load a CPU "
      "state "
      "dict or call module.to_empty(device=\"cpu\"). Found following parameters on non-CPU device: [" +
      elsewhere + "]\n");
}

void FSDPParamGroup::lazy_init() {
  if (sharded_state_ == ShardedState::sharded) {
    if (offload_) require_parameters_on_cpu();
    adopt_replaced_parameters();
  }
  if (lazily_initialized_) return;

  std::vector<std::string> on_meta;
  for (const auto& param : params_) {
    if (param->parameter().is_meta()) on_meta.push_back(param->name());
  }
  if (!on_meta.empty()) {
    throw RuntimeError(
        "FSDP parameters should be materialized from meta device before training, but the following were "
        "still on meta "
        "device: " +
        python_list(on_meta) +
        "\nFor example, call module.to_empty(device) to materialize to device and call "
        "module.reset_parameters() on each "
        "module to initialize values.");
  }
  std::set<at::ScalarType> orig_dtypes;
  std::set<std::optional<at::ScalarType>> reduce_dtypes;
  for (const auto& param : params_) {
    param->init_dtype_attrs(policy_, offload_ ? ranks_.shard->device() : param->piece().device());
    if (!param->parameter().requires_grad()) continue;
    orig_dtypes.insert(param->orig_dtype());
    reduce_dtypes.insert(param->reduce_dtype());
  }
  if (orig_dtypes.size() > 1) {
    throw InvalidState("FSDP expects uniform original parameter dtype but got " + python_set(orig_dtypes));
  }
  if (reduce_dtypes.size() > 1) {
    std::set<at::ScalarType> dtypes;
    for (const auto& dtype : reduce_dtypes) dtypes.insert(dtype.value_or(at::kFloat));
    throw InvalidState("FSDP expects uniform reduce dtype but got " + python_set(dtypes));
  }
  lazily_initialized_ = true;
}

void FSDPParamGroup::set_name(const std::string& name) {
  site_.unit = name;
  site_.has_unit = true;
}

int64_t FSDPParamGroup::data_parallel_size() const {
  return ranks_.shard->size() * (ranks_.replicate ? ranks_.replicate->size() : 1);
}

CallSite FSDPParamGroup::call_site() const {
  auto site = site_;
  switch (training_state_) {
    case TrainingState::idle:
      site.phase = Phase::other;
      break;
    case TrainingState::forward:
      site.phase = Phase::forward;
      break;
    default:
      site.phase = Phase::backward;
  }
  return site;
}

void FSDPParamGroup::finalize_backward() {
  wait_for_reduction();
  drop_gather();
  wait_for_copies_from_host();
  post_forward_indices_.clear();
}

// One that nobody waited for was made ahead of a unit that did not run.
void FSDPParamGroup::drop_gather() {
  if (!gathering_) return;
  const auto result = std::move(*gathering_);
  gathering_.reset();
  result.gathered.block_current();
  if (result.work) result.work->wait();
  if (sharded_state_ == ShardedState::sharded) post_forward_pieces_.clear();
  context_->streams.gathers_wait_current();
  free_unsharded();
}

void FSDPParamGroup::abandon_forward() {
  training_state_ = TrainingState::idle;
  drop_gather();
  to_sharded();
  wait_for_copies_from_host();
}

void FSDPParamGroup::abandon_backward() {
  training_state_ = TrainingState::idle;
  if (context_->reducing == this) context_->reducing = nullptr;
  reducing_.reset();  // its transfers are still waited for, their result is not used
  const auto dropped = std::exchange(reduced_.arriving, {});
  partial_reduce_output_.reset();
  for (const auto& param : params_) param->drop_unsharded_grad();
  finalize_backward();
}

void FSDPParamGroup::pre_forward() {
  training_state_ = TrainingState::forward;
  unshard();
  wait_for_unshard();
}

void FSDPParamGroup::post_forward(bool record) {
  if (record) {
    reshard();
    if (at::GradMode::is_enabled()) {
      post_forward_indices_.push_back(static_cast<int64_t>(context_->post_forward_order.size()));
      context_->post_forward_order.push_back(this);
    }
  }
  training_state_ = TrainingState::idle;
}

void FSDPParamGroup::pre_backward(bool default_prefetch) {
  if (training_state_ == TrainingState::pre_backward) return;
  training_state_ = TrainingState::pre_backward;
  unshard();
  wait_for_unshard();
  if (default_prefetch) backward_prefetch();
}

void FSDPParamGroup::backward_prefetch() {
  if (post_forward_indices_.empty()) return;
  const auto index = post_forward_indices_.back();
  post_forward_indices_.pop_back();
  const auto& order = context_->post_forward_order;
  if (index == 0 || index > static_cast<int64_t>(order.size())) return;
  order[static_cast<size_t>(index - 1)]->prefetch(TrainingState::pre_backward);
}

void FSDPParamGroup::prefetch(TrainingState pass) {
  const auto before = std::exchange(training_state_, pass);
  unshard();
  training_state_ = before;
}

void FSDPParamGroup::post_backward() {
  training_state_ = TrainingState::post_backward;
  const at::NoGradGuard no_grad;
  for (const auto& param : params_) param->accumulate_unsharded_grad_if_needed();
  if (reduce_grads) {
    reduce_gradients();
    return;
  }
  if (reshard_after_backward) reshard();
  for (const auto& param : params_) param->to_accumulated_grad_if_needed();
}

void FSDPParamGroup::reduce_gradients() {
  ReduceInput input;
  for (const auto& param : params_) {
    auto gradient = param->take_unsharded_grad();
    if (!gradient.defined()) continue;  // backward did not reach it: it takes no part
    input.params.push_back(param.get());
    input.gradients.push_back(std::move(gradient));
    if (!input.reduce_dtype) input.reduce_dtype = param->reduce_dtype();
  }
  if (reshard_after_backward) reshard();
  if (input.params.empty()) return;
  input.divide_factor = gradient_divide_factor;
  input.force_sum = force_sum_reduction_for_comms;

  const auto& stream = context_->streams.reduce_scatter;
  context_->free_scatter_input();
  if (context_->reducing) context_->reducing->wait_for_reduction();
  if (stream) wait_for_reduction();  // of an earlier forward of this group
  all_reduces_ = all_reduce_grads;
  reducing_ = foreach_reduce(std::move(input), *ranks_.shard, data_parallel_size(), stream, call_site());
  if (!stream) {
    context_->reducing = this;
    return;
  }
  // The rest is put behind it and runs beside the backward, too.
  const auto beside = stream.use();
  reduced_ = finish_reduction();
  context_->scattered = std::exchange(reduced_.scattered, {});
  context_->scatter_input = std::exchange(reduced_.input, {});
}

void FSDPParamGroup::wait_for_reduction() {
  if (reducing_) finish_reduction();
  const auto reduced = std::exchange(reduced_, {});
  offload_ ? reduced.handed_over.synchronize() : reduced.handed_over.block_current();
  for (const auto& [param, gradient] : reduced.arriving) param->accept_sharded_grad(gradient);
}

Reduced FSDPParamGroup::finish_reduction() {
  const at::NoGradGuard no_grad;
  if (context_->reducing == this) context_->reducing = nullptr;
  auto result = std::move(*reducing_);
  reducing_.reset();
  const auto orig_dtype = result.params.front()->orig_dtype();
  auto site = call_site();
  site.phase = Phase::backward;
  return finish_reduce(
      std::move(result),
      {ranks_.replicate.get(), all_reduces_, &partial_reduce_output_, all_reduce_hook, orig_dtype, offload_},
      context_->streams.all_reduce, site);
}

// Gathering, freeing, and resharding to a smaller group.

Communicator& FSDPParamGroup::gather_group() const {
  return sharded_state_ == ShardedState::sharded_post_forward ? *ranks_.post_forward : *ranks_.shard;
}

AllGatherInput FSDPParamGroup::gather_input() const {
  const bool post_forward = sharded_state_ == ShardedState::sharded_post_forward;
  const auto ranks = gather_group().size();
  AllGatherInput input;
  input.dtype = params_.front()->gather_dtype();
  for (const auto& param : params_) {
    if (param->gather_dtype() != input.dtype) input.dtype = at::kByte;
  }
  const bool as_bytes = input.dtype == at::kByte;
  for (size_t i = 0; i < params_.size(); ++i) {
    auto& param = *params_[i];
    const auto itemsize = as_bytes ? static_cast<int64_t>(c10::elementSize(param.gather_dtype())) : 1;
    // A smaller group holds equal parts of the gathered buffer as it lies, whatever dimension the parameter
    // is cut on.
    const auto numel = itemsize * (post_forward ? param.full_numel() / ranks : param.padded_shard_numel());
    input.params.push_back(&param);
    input.slots.push_back({0, numel, post_forward ? 0 : param.layout().dim, param.layout().global_shape});
    if (post_forward) {
      input.pieces.push_back(post_forward_pieces_[i]);
    } else {
      input.pieces.push_back(as_bytes ? param.piece().to(param.gather_dtype()) : param.piece());
    }
  }
  return input;
}

void FSDPParamGroup::unshard() {
  if (gathering_ || sharded_state_ == ShardedState::unsharded) return;
  if (!unshard_in_backward && training_state_ == TrainingState::pre_backward) return;
  lazy_init();
  const at::NoGradGuard no_grad;
  // Outside of a pass a user asks for it, and what the user has put on the current stream comes first.
  const bool in_pass =
      training_state_ == TrainingState::forward || training_state_ == TrainingState::pre_backward;
  const auto& streams = in_pass && !unshard_async_op ? context_->streams : CommStreams();
  streams.gathers_wait_event(std::exchange(resharded_, {}));
  // Written since the pass began, by a load or by a user.
  if (streams.copy_in && awaited_version_ != shards_version()) {
    streams.gathers_wait_current();
    shards_awaited();
  }
  const auto beside = streams.copy_in.use();
  gathering_ = foreach_all_gather(gather_input(), gather_group(), streams.all_gather, call_site());
  if (offload_) copied_from_host_ = StreamEvent::record(ranks_.shard->device());
}

void FSDPParamGroup::wait_for_copies_from_host() {
  std::exchange(copied_from_host_, {}).synchronize();
}

uint64_t FSDPParamGroup::shards_version() const {
  uint64_t version = 0;
  for (const auto& param : params_) version += param->parameter()._version();
  return version;
}

void FSDPParamGroup::wait_for_unshard() {
  if (!gathering_) return;
  const at::NoGradGuard no_grad;
  auto result = std::move(*gathering_);
  gathering_.reset();
  const bool in_forward = training_state_ == TrainingState::forward;
  if (in_forward) context_->free_copied_out();
  foreach_all_gather_copy_out(result);
  if (const auto& streams = context_->streams; streams.copy_in) {
    const auto copied = StreamEvent::record(ranks_.shard->device());
    // In forward the next gather need not wait for this copy-out: the buffer lives one gather longer.
    if (in_forward && !unshard_async_op) {
      context_->copied_out = CopiedOut{std::move(result), copied};
    } else {
      streams.gathers_wait_event(copied);
    }
  }
  for (const auto& param : params_) param->to_unsharded();
  post_forward_pieces_.clear();
  sharded_state_ = ShardedState::unsharded;
}

void FSDPParamGroup::reshard() {
  if (training_state_ == TrainingState::forward) {
    if (after_forward == ShardedState::unsharded) return;
    if (after_forward == ShardedState::sharded_post_forward) {
      to_sharded_post_forward();
      return;
    }
  }
  to_sharded();
}

void FSDPParamGroup::to_sharded() {
  if (sharded_state_ == ShardedState::sharded) return;
  for (const auto& param : params_) param->to_sharded();
  if (sharded_state_ == ShardedState::unsharded) free_unsharded();
  if (!gathering_) post_forward_pieces_.clear();  // or a gather, made ahead for nobody, reads them yet
  sharded_state_ = ShardedState::sharded;
}

void FSDPParamGroup::free_unsharded() {
  for (const auto& param : params_) {
    if (param->full().defined()) free_storage(param->full());
  }
}

void FSDPParamGroup::to_sharded_post_forward() {
  if (sharded_state_ != ShardedState::unsharded) return;
  const at::NoGradGuard no_grad;
  const auto& group = *ranks_.post_forward;
  for (const auto& param : params_) {
    const auto numel = param->full_numel() / group.size();
    // A copy, so that the gathered memory can go.
    post_forward_pieces_.push_back(param->full().narrow(0, group.rank() * numel, numel).clone());
    param->to_sharded_post_forward(post_forward_pieces_.back(), group.rank(), group.size());
  }
  resharded_ = StreamEvent::record(group.device());
  free_unsharded();
  sharded_state_ = ShardedState::sharded_post_forward;
}

}  // namespace fsdp
