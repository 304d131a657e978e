// How FSDP1 turns the gradients of all ranks into one: divide, add, divide, cast, accumulate.
#include <ATen/ATen.h>

#include <algorithm>

#include "reference/flat_unit.hpp"

namespace fsdp_cts::reference {

// Empty when none of the members got one. In one flat gradient a trainable member that was not used has
// zeros.
std::vector<at::Tensor> FlatUnit::take_gradients() {
  std::vector<at::Tensor> gradients;
  for (UnitParameter& p : parameters_) {
    gradients.push_back(p.compute.defined() ? p.compute.grad() : at::Tensor());
    if (p.compute.defined()) p.compute.mutable_grad().reset();
  }
  const bool none =
      std::none_of(gradients.begin(), gradients.end(), [](const at::Tensor& g) { return g.defined(); });
  if (none) return {};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(parameters_[i].compute.detach());
  }
  return gradients;
}

// Where backward has not come to the unit, and what it would have added to is there as it was.
bool FlatUnit::gives_back_what_was_reduced() {
  bool any = false;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor gradient =
        parameters_[i].compute.defined() ? parameters_[i].compute.grad() : at::Tensor();
    if (!gradient.defined()) continue;
    const auto& [before, version] = added_to_[i];
    if (!gradient.is_same(before) || gradient._version() != version) return false;
    any = true;
  }
  for (std::size_t i = 0; any && i < parameters_.size(); ++i) {
    UnitParameter& p = parameters_[i];
    if (p.compute.defined()) p.master.mutable_grad() = std::exchange(p.compute.mutable_grad(), at::Tensor());
  }
  return any;
}

at::ScalarType FlatUnit::reduce_dtype() const {
  const FlatMixedPrecision& mixed = settings_.mixed_precision;
  return mixed.reduce_dtype.value_or(mixed.param_dtype.value_or(parameters_.front().master.scalar_type()));
}

void FlatUnit::accept(std::size_t member, const at::Tensor& reduced) {
  UnitParameter& p = parameters_[member];
  if (!p.master.requires_grad()) {
    // A parameter that was frozen since shows no gradient any more; what others have is theirs.
    if (settings_.use_orig_params) p.master.mutable_grad().reset();
    return;
  }
  const FlatMixedPrecision& mixed = settings_.mixed_precision;
  const bool keep_low = mixed.keep_low_precision_grads && !forced_full_precision();
  at::Tensor& gradient = p.master.mutable_grad();
  if (keep_low && gradient.defined()) gradient = gradient.to(p.master.scalar_type());
  accumulate_gradient(p.master, reduced.to(p.master.scalar_type()));
  // Sharded, the kept gradient has the compute dtype; not sharded, it stays as it was reduced.
  if (keep_low) gradient = gradient.to(settings_.shards() ? compute_dtype(p) : reduce_dtype());
}

void FlatUnit::reduce(const std::vector<Unit*>& peers, Order order) {
  if (parameters_.empty() || !settings_.group.communicates) return;
  std::vector<FlatUnit*> ranks;
  std::vector<std::vector<at::Tensor>> gradients;
  const auto gives_back = [](Unit* peer) {
    return static_cast<FlatUnit*>(peer)->gives_back_what_was_reduced();
  };
  if (std::all_of(peers.begin(), peers.end(), gives_back)) return;
  for (Unit* peer : peers) {
    ranks.push_back(static_cast<FlatUnit*>(peer));
    gradients.push_back(ranks.back()->take_gradients());
    if (gradients.back().empty()) return;
  }
  if (!sync_gradients) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r]->unreduced_is_exposed_ = true;
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        UnitParameter& p = ranks[r]->parameters_[i];
        ranks[r]->hidden_[i] =
            std::exchange(p.master.mutable_grad(), p.master.requires_grad() ? gradients[r][i] : at::Tensor());
      }
    }
    return;
  }

  const auto size = static_cast<std::size_t>(settings_.group.size),
             replicas = static_cast<std::size_t>(settings_.group.replicas);
  const double divisor = comm_hook ? 1 : static_cast<double>(size * replicas);
  const std::int64_t length =
      settings_.shards() ? layout_.shard_numel() * settings_.group.size : layout_.total();
  const std::size_t set =
      size * replicas;  // ranks whose gradients end up as one; `self` makes a set of each rank
  for (std::size_t first = 0; first < ranks.size(); first += set) {
    std::vector<at::Tensor> sums;
    at::ScalarType reduced_in{};
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      std::vector<at::Tensor> buffers;
      for (std::size_t r = first + replica * size; r < first + (replica + 1) * size; ++r) {
        at::Tensor flat = layout_.join(gradients[r], length);
        if (!forced_full_precision()) flat = flat.to(reduce_dtype());
        divide(flat, predivide_factor(divisor));
        reduced_in = flat.scalar_type();
        if (comm_hook) {
          flat = flat.to(comm_hook->dtype.value_or(reduced_in));
          flat.mul_(comm_hook->scale).add_(comm_hook->add);
        }
        buffers.push_back(std::move(flat));
      }
      sums.push_back(sum_over_ranks(buffers, order));
    }
    at::Tensor total = sums.front();
    if (replicas > 1) {
      std::vector<at::Tensor> shards;
      for (std::int64_t s = 0; s < settings_.group.size; ++s) {
        std::vector<at::Tensor> copies;
        for (const at::Tensor& sum : sums)
          copies.push_back(sum.narrow(0, s * layout_.shard_numel(), layout_.shard_numel()));
        shards.push_back(sum_over_ranks(copies, order));
      }
      total = at::cat(shards);
    }
    total = total.to(reduced_in);
    divide(total, divisor / predivide_factor(divisor));
    for (std::size_t r = first; r < first + set; ++r) {
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const at::Tensor& master = ranks[r]->parameters_[i].master;
        ranks[r]->accept(i, total.narrow(0, layout_.offset(i), master.numel()).view(master.sizes()));
      }
    }
  }
}

}  // namespace fsdp_cts::reference
