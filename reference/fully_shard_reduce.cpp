// How FSDP2 turns the gradients of all ranks into sharded ones: accumulation, layout, division, rounding.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "reference/fully_shard.hpp"

namespace fsdp_cts::reference {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// What is done to a sum over shards (S ranks) and then over replicas (R), D = S * R.
struct Division {
  double premultiply = 1;  // of each rank's gradient
  double before = 1, after_scatter = 1, after_all_reduce = 1, after = 1;
};

// Table of semantics: fp32 and bf16 average natively (divide after each sum) unless sums are asked for, everything
// else divides partly before to stay in range. What is divided at the end is divided behind the hook.
Division division(at::ScalarType dtype, double shards, double replicas, std::optional<double> factor,
                  bool sums_only) {
  Division d;
  const bool overflow_risk = dtype != at::kFloat && dtype != at::kBFloat16;
  if (overflow_risk || sums_only) {
    const double divisor = factor.value_or(shards * replicas);
    d.before = overflow_risk ? predivide_factor(divisor) : 1;
    d.after = divisor / d.before;
  } else if (shards * replicas == 1) {
    if (factor) d.after_scatter = *factor;
  } else if (!factor) {
    d.after_scatter = shards;
    d.after_all_reduce = replicas;
  } else if (*factor == shards) {
    d.after_scatter = shards;
  } else {
    d.premultiply = 1 / *factor;
  }
  return d;
}

// [shards, rows * rest]: slot r holds the r-th chunk along the shard dimension, the last ones padded with
// zero rows.
at::Tensor chunked(const at::Tensor& gradient, std::int64_t dim, std::int64_t shards) {
  at::Tensor rows = gradient.movedim(dim, 0);
  const std::int64_t padded = ceil_div(rows.size(0), shards) * shards;
  if (padded != rows.size(0)) {
    std::vector<std::int64_t> shape = rows.sizes().vec();
    shape[0] = padded - rows.size(0);
    rows = at::cat({rows, at::zeros(shape, rows.options())});
  }
  // Within a chunk along another dimension the elements lie as in the local shard, which keeps its
  // dimensions' order.
  if (dim == 0) return rows.reshape({shards, -1});
  std::vector<at::Tensor> chunks = gradient.chunk(shards, dim);
  for (at::Tensor& chunk : chunks) chunk = chunk.reshape({1, -1});
  return at::cat(chunks);
}

at::Tensor unchunked(const at::Tensor& flat, at::IntArrayRef shape, std::int64_t dim, std::int64_t shards) {
  std::vector<std::int64_t> local = shape.vec();
  const auto at_dim = static_cast<std::size_t>(dim);
  local[at_dim] = ceil_div(local[at_dim], shards);
  std::vector<at::Tensor> chunks;
  for (std::int64_t r = 0; r < shards; ++r) chunks.push_back(flat.select(0, r).reshape(local));
  return at::cat(chunks, dim).narrow(dim, 0, shape[at_dim]);
}

// Each shard on its own: its position in its own buffer decides the ring's order.
void all_reduce(std::vector<at::Tensor>& by_replica, std::int64_t shards, double divisor, Order order) {
  std::vector<at::Tensor> reduced;
  for (std::int64_t s = 0; s < shards; ++s) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& sum : by_replica) copies.push_back(sum.view({shards, -1}).select(0, s));
    reduced.push_back(sum_over_ranks(copies, order));
  }
  at::Tensor total = at::cat(reduced);
  divide(total, divisor);
  for (at::Tensor& sum : by_replica) sum = total.clone();
}

}  // namespace

std::optional<at::ScalarType> FullyShardUnit::reduce_dtype() const {
  if (policy_.reduces_in_original_dtype && !policy_.reduce_dtype && !parameters_.empty())
    return parameters_.front().master.scalar_type();
  return policy_.reduce_dtype == policy_.param_dtype ? std::nullopt : policy_.reduce_dtype;
}

// Gradients that wait keep the reduce dtype where one is set. Without one they stay where autograd put them
// and go on adding in the compute dtype.
void FullyShardUnit::collect_gradients() {
  const auto dtype = reduce_dtype();
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    UnitParameter& p = parameters_[k];
    at::Tensor fresh = p.compute.defined() ? p.compute.grad() : at::Tensor();
    if (!fresh.defined()) continue;
    if (unreduced_[k].defined()) {
      unreduced_[k].add_(fresh);
    } else if (reduce_gradients) {
      unreduced_[k] = fresh;
    } else if (dtype && *dtype != fresh.scalar_type()) {
      unreduced_[k] = fresh.to(*dtype);
    } else {
      continue;
    }
    p.compute.mutable_grad().reset();
  }
}

at::Tensor FullyShardUnit::flat_gradient(const std::vector<std::size_t>& used, std::int64_t shards) const {
  std::vector<at::Tensor> columns;
  for (const std::size_t k : used) columns.push_back(chunked(unreduced_[k], shard_dims_[k], shards));
  const at::Tensor flat = at::cat(columns, 1).reshape({-1});
  return flat.to(reduce_dtype().value_or(flat.scalar_type()));
}

void FullyShardUnit::accept_gradients(const std::vector<std::size_t>& used, const at::Tensor& flat,
                                      std::int64_t shards) {
  const at::Tensor slots = flat.view({shards, -1});
  std::int64_t start = 0;
  for (const std::size_t k : used) {
    UnitParameter& p = parameters_[k];
    const std::int64_t length = chunked(p.master.detach(), shard_dims_[k], shards).size(1);
    const at::Tensor full =
        unchunked(slots.narrow(1, start, length), p.master.sizes(), shard_dims_[k], shards);
    accumulate_gradient(p.master, full.to(p.master.scalar_type()));
    if (const auto& hook = torch::autograd::impl::post_acc_grad_hooks(p.master)) (*hook)(p.master);
    start += length;
  }
}

void FullyShardUnit::reduce(const std::vector<Unit*>& peers, Order order) {
  std::vector<FullyShardUnit*> ranks;
  for (Unit* peer : peers) ranks.push_back(static_cast<FullyShardUnit*>(peer));
  for (FullyShardUnit* rank : ranks) {
    rank->collect_gradients();
    if (std::exchange(rank->ran_, false))
      rank->stays_gathered_ =
          !rank->reshards_after_backward && (rank->reached_ || !rank->reshards_after_forward);
  }
  if (!reduce_gradients) return;

  std::vector<std::size_t> used;
  for (std::size_t k = 0; k < unreduced_.size(); ++k) {
    if (unreduced_[k].defined()) used.push_back(k);
  }
  if (used.empty()) return;
  const auto replicas = static_cast<std::size_t>(replicas_.count);
  const std::size_t shards = ranks.size() / replicas;
  const auto shard_count = static_cast<std::int64_t>(shards);
  const bool put_off = !all_reduce_gradients && replicas_.native;

  std::vector<at::Tensor> by_replica;  // reduce-scattered, all shards one after the other
  Division d;
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    std::vector<at::Tensor> buffers;
    for (std::size_t s = 0; s < shards; ++s) {
      FullyShardUnit& rank = *ranks[replica * shards + s];
      buffers.push_back(rank.flat_gradient(used, shard_count));
      d = division(buffers.back().scalar_type(), static_cast<double>(shards),
                   replicas_.native ? static_cast<double>(replicas) : 1, divide_factor, sums_only);
      if (d.premultiply != 1) buffers.back() = buffers.back() * d.premultiply;
      divide(buffers.back(), d.before);
      std::fill(rank.unreduced_.begin(), rank.unreduced_.end(), at::Tensor());
    }
    at::Tensor sum = sum_over_ranks(buffers, order);
    divide(sum, d.after_scatter);
    FullyShardUnit& keeper = *ranks[replica * shards];
    if (keeper.partial_.defined()) sum.add_(keeper.partial_);
    keeper.partial_.reset();
    if (put_off) keeper.partial_ = sum;
    by_replica.push_back(sum);
  }
  if (put_off) return;

  if (replicas > 1 && replicas_.native) all_reduce(by_replica, shard_count, d.after_all_reduce, order);
  if (all_reduce_hook) {
    if (all_reduce_hook->mean_over_replicas)
      all_reduce(by_replica, shard_count, static_cast<double>(replicas), order);
    for (at::Tensor& sum : by_replica) sum.mul_(all_reduce_hook->scale).add_(all_reduce_hook->add);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    at::Tensor total = by_replica[r / shards].clone();
    divide(total, d.after);
    ranks[r]->accept_gradients(used, total, shard_count);
  }
}

}  // namespace fsdp_cts::reference
