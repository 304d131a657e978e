#include "fsdp/collectives.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <set>
#include <utility>

#include "fsdp/errors.hpp"
#include "fsdp/python_text.hpp"
#include "fsdp/storage.hpp"

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
    throw AssertionError("FSDP reduce-scatter expects uniform gradient dtype but got " + python_set(dtypes));
  }
  return dtype;
}

}  // namespace

AllGatherResult foreach_all_gather(const UnitContext& unit, AllGatherInput input, Communicator& group,
                                   const GatherRule& rule, const CallSite& site) {
  const auto options = input.pieces.front().options().dtype(input.dtype).requires_grad(false);
  const auto output = at::empty({group.size() * input.rank_numel}, options);
  const auto own = alias(output, group.rank() * input.rank_numel, {input.rank_numel});
  rule.copy_in(unit, input.slots, input.pieces, own);
  auto work = group.size() > 1 ? group.all_gather(output, own, site) : nullptr;
  return {output, std::move(input.slots), std::move(work)};
}

void foreach_all_gather_copy_out(const UnitContext& unit, AllGatherResult& result,
                                 const std::vector<at::Tensor>& full, const GatherRule& rule) {
  if (result.work) result.work->wait();
  rule.copy_out(unit, result.slots, result.output, full);
}

ReduceResult foreach_reduce(const UnitContext& unit, ReduceInput input, Communicator& group,
                            const ReduceRule& rule, const CallSite& site) {
  const auto dtype = input.reduce_dtype.value_or(uniform_dtype(input.gradients));
  const auto plan = rule.plan({unit, dtype, input.divide_factor, input.force_sum});

  std::vector<Slot> slots;
  int64_t numel = 0;
  for (const auto* param : input.params) {
    slots.push_back({numel, param->padded_shard_numel(), param->layout().dim, param->layout().global_shape});
    numel += param->padded_shard_numel();
  }
  const auto options = input.gradients.front().options().dtype(dtype).requires_grad(false);
  const auto buffer = at::empty({group.size() * numel}, options);
  rule.copy_in(unit, slots, input.gradients, buffer);
  input.gradients.clear();
  divide_if_needed(buffer, plan.pre_divide);

  if (group.size() == 1) {
    // No collective to carry the division out, except an average over one, which is none.
    if (plan.reduce_scatter.op == ReduceOp::premul_sum) divide_if_needed(buffer, input.divide_factor);
    return {std::move(input.params), buffer, nullptr, plan};
  }
  const auto output = at::empty({numel}, options);
  auto work = group.reduce_scatter(output, buffer, plan.reduce_scatter, site);
  return {std::move(input.params), output, std::move(work), plan};
}

void finish_reduce(ReduceResult result, const ReduceCompletion& completion, const AccumulateRule& rule,
                   const CallSite& site) {
  if (result.work) result.work->wait();
  auto output = std::move(result.output);
  if (completion.replicas) {
    auto& partial = *completion.partial;
    if (!completion.all_reduce) {
      if (partial.defined()) {
        partial.add_(output);
      } else {
        partial = output;
      }
      return;
    }
    if (partial.defined()) output.add_(std::exchange(partial, {}));
    if (completion.replicas->size() > 1)
      completion.replicas->all_reduce(output, result.plan.all_reduce, site)->wait();
  }
  if (completion.all_reduce_hook) completion.all_reduce_hook(output);
  divide_if_needed(output, result.plan.post_divide);
  output = output.to(completion.orig_dtype);

  int64_t offset = 0;
  for (auto* param : result.params) {
    // Not an autograd view: zero_grad could not detach one in place.
    rule.add_sharded(param->parameter(), alias(output, offset, param->layout().local_shape()));
    offset += param->padded_shard_numel();
    if (const auto& hook = torch::autograd::impl::post_acc_grad_hooks(param->parameter()))
      (*hook)(param->parameter());
  }
}

}  // namespace fsdp
