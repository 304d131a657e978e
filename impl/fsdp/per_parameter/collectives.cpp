#include "per_parameter/collectives.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/python_text.hpp"
#include "base/storage.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

void divide_if_needed(const at::Tensor& tensor, std::optional<double> divisor) {
  auto divided = tensor;
  if (divisor && *divisor != 1) divided.div_(*divisor);
}

at::ScalarType uniform_dtype(const std::vector<at::Tensor>& gradients) {
  const auto dtype = gradients.front().scalar_type();
  for (const auto& gradient : gradients) {
    if (gradient.scalar_type() == dtype) continue;
    std::set<at::ScalarType> dtypes;
    for (const auto& g : gradients) dtypes.insert(g.scalar_type());
    throw InvalidState("FSDP reduce-scatter expects uniform gradient dtype but got " + python_set(dtypes));
  }
  return dtype;
}

/// Largest power of two that divides `factor` and is not above about its square root: dividing by it before
/// the reduction and by the rest after keeps narrow dtypes clear of overflow and underflow.
double pre_divide_factor(double factor) {
  double pre = 1;
  while (std::fmod(factor, pre) == 0 && factor / pre > pre) pre *= 2;
  return pre;
}

/// From here on a message of its own costs less than the copies it saves: measured over loopback.
bool is_large(const Slot& slot, at::ScalarType dtype) {
  return slot.numel * static_cast<int64_t>(c10::elementSize(dtype)) >= (int64_t{1} << 17);
}

}  // namespace

ReducePlan reduce_plan(at::ScalarType dtype, int64_t ranks, int64_t data_parallel_size,
                       std::optional<double> divide_factor, bool force_sum) {
  const bool narrow_range = dtype != at::kFloat && dtype != at::kBFloat16;
  if (!narrow_range && !force_sum) {
    if (!divide_factor && data_parallel_size == 1) return {};
    if (!divide_factor) return {std::nullopt, {ReduceOp::avg}, {ReduceOp::avg}, std::nullopt};
    if (*divide_factor == static_cast<double>(ranks))
      return {std::nullopt, {ReduceOp::avg}, {ReduceOp::sum}, std::nullopt};
    return {std::nullopt, {ReduceOp::premul_sum, 1.0 / *divide_factor}, {ReduceOp::sum}, std::nullopt};
  }
  const auto divisor = divide_factor.value_or(static_cast<double>(data_parallel_size));
  if (!narrow_range) return {std::nullopt, {}, {}, divisor};
  const auto pre = pre_divide_factor(divisor);
  return {pre, {}, {}, divisor / pre};
}

AllGatherResult foreach_all_gather(AllGatherInput input, Communicator& group, const SideStream& stream,
                                   const CallSite& site) {
  auto* partwise = input.dtype == at::kByte ? nullptr : group.partwise();
  AllGatherResult result;
  result.ranks = group.size();
  std::vector<Part> parts;
  std::vector<at::Tensor> pieces;
  int64_t packed_numel = 0;
  for (size_t i = 0; i < input.params.size(); ++i) {
    auto& slot = input.slots[i];
    auto* param = input.params[i];
    // The gathered memory is the ranks' pieces one after another, and nothing else.
    const bool contiguous = slot.shard_dim == 0 && param->full_numel() == group.size() * slot.numel;
    if (partwise && contiguous && is_large(slot, input.dtype)) {
      const auto& full = param->alloc_full();
      const auto own = alias(full, group.rank() * slot.numel, {slot.numel});
      own.copy_(input.pieces[i]);
      parts.push_back({full, own});
      continue;
    }
    slot.offset = packed_numel;
    packed_numel += slot.numel;
    result.slots.push_back(slot);
    result.packed.push_back(param);
    pieces.push_back(std::move(input.pieces[i]));
  }
  if (!result.packed.empty()) {
    const auto options = at::TensorOptions(group.device()).dtype(input.dtype);
    result.output = at::empty({group.size() * packed_numel}, options);
    const auto own = alias(result.output, group.rank() * packed_numel, {packed_numel});
    gather_copy_in(result.slots, pieces, own);
    parts.push_back({result.output, own});
  }
  stream.wait_current();
  const auto beside = stream.use();
  if (group.size() > 1) {
    result.work = parts.size() == 1 ? group.all_gather(parts.front().large, parts.front().small, site)
                                    : partwise->all_gather(parts, site);
  }
  result.gathered = StreamEvent::record(group.device());
  return result;
}

void foreach_all_gather_copy_out(AllGatherResult& result) {
  result.gathered.block_current();
  if (result.work) result.work->wait();
  if (result.packed.empty()) return;
  std::vector<at::Tensor> full;
  for (auto* param : result.packed) full.push_back(param->alloc_full());
  gather_copy_out(result.slots, result.output, full, result.ranks);
}

ReduceResult foreach_reduce(ReduceInput input, Communicator& group, int64_t data_parallel_size,
                            const SideStream& stream, const CallSite& site) {
  // Asked of the gradients only where no dtype is given: one that waits may be in the reduce dtype already.
  const auto dtype = input.reduce_dtype ? *input.reduce_dtype : uniform_dtype(input.gradients);
  const auto plan =
      reduce_plan(dtype, group.size(), data_parallel_size, input.divide_factor, input.force_sum);
  auto* partwise = group.size() == 1 || plan.pre_divide ? nullptr : group.partwise();

  std::vector<Slot> slots;
  std::vector<at::Tensor> gradients;
  std::vector<size_t> in_place;
  std::vector<int64_t> offsets(input.params.size());
  int64_t packed_numel = 0;
  for (size_t i = 0; i < input.params.size(); ++i) {
    const auto& param = *input.params[i];
    auto& gradient = input.gradients[i];
    const Slot slot{packed_numel, param.padded_shard_numel(), param.layout().dim,
                    param.layout().global_shape};
    const bool as_it_is = gradient.scalar_type() == dtype && gradient.is_contiguous();
    if (partwise && slot.shard_dim == 0 && as_it_is && is_large(slot, dtype)) {
      in_place.push_back(i);
      continue;
    }
    offsets[i] = packed_numel;
    packed_numel += slot.numel;
    slots.push_back(slot);
    gradients.push_back(std::move(gradient));
  }
  auto numel = packed_numel;
  for (const auto i : in_place) {
    offsets[i] = numel;
    numel += input.params[i]->padded_shard_numel();
  }
  const auto options = at::TensorOptions(group.device()).dtype(dtype);
  at::Tensor buffer;
  if (!slots.empty()) {
    buffer = at::empty({group.size() * packed_numel}, options);
    reduce_copy_in(slots, gradients, buffer, group.size());
    gradients.clear();
  }
  stream.wait_current();
  const auto beside = stream.use();
  if (buffer.defined()) divide_if_needed(buffer, plan.pre_divide);
  if (group.size() == 1) {
    // No collective to carry the division out, except an average over one, which is none.
    if (plan.reduce_scatter.op == ReduceOp::premul_sum) divide_if_needed(buffer, input.divide_factor);
    return {std::move(input.params), std::move(offsets), buffer, buffer, nullptr, plan};
  }
  const auto output = at::empty({numel}, options);
  if (in_place.empty()) {
    auto work = group.reduce_scatter(output, buffer, plan.reduce_scatter, site);
    // On a CPU the work keeps the buffer, as long as it needs it and no longer.
    if (!stream) buffer.reset();
    return {std::move(input.params), std::move(offsets), buffer, output, std::move(work), plan};
  }
  std::vector<Part> parts;
  for (const auto i : in_place) {
    const auto& gradient = input.gradients[i];
    parts.push_back({alias(gradient, 0, {gradient.numel()}),
                     alias(output, offsets[i], {input.params[i]->padded_shard_numel()})});
  }
  if (buffer.defined()) parts.push_back({buffer, alias(output, 0, {packed_numel})});
  auto work = partwise->reduce_scatter(parts, plan.reduce_scatter, site);
  return {std::move(input.params), std::move(offsets), {}, output, std::move(work), plan};
}

Reduced finish_reduce(ReduceResult result, const ReduceCompletion& completion, const SideStream& all_reduce,
                      const CallSite& site) {
  if (result.work) result.work->wait();
  auto output = std::move(result.output);
  Reduced reduced{StreamEvent::record(output.device()), std::move(result.input), {}, output, {}};
  // Where nothing was scattered. It is the memory of the stream that packed it.
  const bool is_input = reduced.input.defined() && output.is_alias_of(reduced.input);
  if (completion.replicas) {
    auto& partial = *completion.partial;
    if (!completion.all_reduce) {
      if (partial.defined()) {
        partial.add_(output);
      } else {
        partial = is_input ? output.clone() : output;
      }
      if (is_input) reduced.scattered = StreamEvent::record(output.device());  // it was read until here
      return reduced;  // what waits in `partial` is read behind this, on the same stream
    }
    if (partial.defined()) output.add_(std::exchange(partial, {}));
  }
  const auto& rest = completion.replicas || completion.all_reduce_hook ? all_reduce : SideStream();
  rest.wait_current();
  const auto beside = rest.use();
  if (completion.replicas) {
    if (completion.replicas->size() > 1)
      completion.replicas->all_reduce(output, result.plan.all_reduce, site)->wait();
  }
  if (completion.all_reduce_hook) completion.all_reduce_hook(output);
  divide_if_needed(output, result.plan.post_divide);
  output = output.to(completion.orig_dtype);
  // Pinned memory that nobody reads yet is filled beside the backward; `handed_over` is behind that copy.
  const bool arrives = completion.offload && completion.offload->pin_memory &&
                       std::ranges::none_of(result.params, [](const FSDPParam* param) {
                         return param->reads_sharded_grad_at_once();
                       });
  if (completion.offload) output = output.to(at::kCPU, /*non_blocking=*/arrives);

  for (size_t i = 0; i < result.params.size(); ++i) {
    const auto* param = result.params[i];
    // Not an autograd view: zero_grad could not detach one in place.
    const auto gradient = alias(output, result.offsets[i], param->layout().local_shape());
    if (arrives)
      reduced.arriving.emplace_back(param, gradient);
    else
      param->accept_sharded_grad(gradient);
  }
  reduced.handed_over = StreamEvent::record(reduced.output.device());
  // Memory that one stream alone has used may go to who comes next on that stream: with offload, or an optimizer in
  // backward, no reduced gradient is on the device any more.
  if (!rest && !is_input) reduced.output.reset();
  return reduced;
}

}  // namespace fsdp
