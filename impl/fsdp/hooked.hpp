#pragma once
// Makes a torch::nn module class hookable without touching it:
//
//   FSDP_HOOKED_MODULE(HookedLinear, torch::nn::LinearImpl);   // a holder, used as torch::nn::Linear would
//   be HookedLinear layer(torch::nn::LinearOptions(16, 16)); layer(x); // runs hooks, then
//   LinearImpl::forward, then hooks
//
// The derived class shadows `forward` with the same signature, so it works through holder(x),
// holder->forward(x), torch::nn::Sequential and torch::nn::AnyModule. A call through a reference to the base
// class misses the hooks.
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <utility>

#include "fsdp/errors.hpp"
#include "fsdp/forward_hooks.hpp"
#include "fsdp/tensor_visit.hpp"

namespace fsdp {

/// Runs `forward(arguments...)` between the slot's hooks; the arguments are changed in place. Also the way to
/// run another method of a sharded module as if it were its forward.
template <class Forward, class... Args>
auto run_hooked(const HookSlot& slot, Forward&& forward, Args&... arguments) {
  TensorList tensors;
  (visit_if_possible(arguments, [&](at::Tensor& tensor) { tensors.push_back(tensor); }), ...);
  tensors = slot.run_before(std::move(tensors));
  size_t next = 0;
  (visit_if_possible(arguments, [&](at::Tensor& tensor) { tensor = tensors[next++]; }), ...);
  tensors.clear();

  auto result = forward(arguments...);
  visit_if_possible(result, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
  tensors = slot.run_after(std::move(tensors));
  next = 0;
  visit_if_possible(result, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
  return result;
}

template <class M, class Signature = decltype(&M::forward)>
class Hooked;

template <class M, class Owner, class R, class... Args>
class Hooked<M, R (Owner::*)(Args...)> : public M, public HookSlot {
 public:
  using M::M;
  explicit Hooked(const M& unhooked) : M(unhooked) {}

  R forward(Args... args) {
    if (!has_forward_hooks()) return M::forward(std::forward<Args>(args)...);
    // Hooks replace tensors, so each argument is held by value here.
    return [this](std::decay_t<Args>... held) -> R {
      return run_hooked(
          *this, [this](std::decay_t<Args>&... a) -> R { return M::forward(static_cast<Args>(a)...); },
          held...);
    }(std::forward<Args>(args)...);
  }

  /// Throws AssertionError once there are hooks: the copy of a sharded module would share its shards.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    if (has_forward_hooks()) {
      throw AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.");
    }
    return std::make_shared<Hooked>(dynamic_cast<const M&>(*M::clone(device)));
  }
};

template <class M, class Owner, class R, class... Args>
class Hooked<M, R (Owner::*)(Args...) const> : public Hooked<M, R (Owner::*)(Args...)> {
 public:
  using Hooked<M, R (Owner::*)(Args...)>::Hooked;
};

}  // namespace fsdp

#define FSDP_HOOKED_MODULE(Name, Impl)                               \
  class Name : public torch::nn::ModuleHolder<fsdp::Hooked<Impl>> {  \
   public:                                                           \
    using torch::nn::ModuleHolder<fsdp::Hooked<Impl>>::ModuleHolder; \
  }
