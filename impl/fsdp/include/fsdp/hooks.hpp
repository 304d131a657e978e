#pragma once
// How the library gets to run code before and after a module's forward. C++ modules have no forward hooks, so
// a module must be built to be hooked, in one of three ways.
//
// 1. Hooked<M> makes any torch::nn module class hookable without touching it:
//
//   FSDP_HOOKED_MODULE(HookedLinear, torch::nn::LinearImpl);   // a holder, used as torch::nn::Linear would
//   be HookedLinear layer(torch::nn::LinearOptions(16, 16)); layer(x); // runs hooks, then
//   LinearImpl::forward, then hooks
//
//    The derived class shadows `forward` with the same signature, so it works through holder(x),
//    holder->forward(x), torch::nn::Sequential and torch::nn::AnyModule. A call through a reference to the
//    base class misses the hooks.
// 2. A class of one's own derives from HookSlot and calls run_hooked.
// 3. A family of modules with slots of its own registers an adapter.
//
// Which tensors a hook sees: those inside a forward's arguments and results, through tensors, optionals,
// vectors, arrays, tuples, pairs and string maps of them, nested. Give a type of your own an overload
// `visit_tensors(T&, F)` in its namespace to take part.
//
// Adapters are registered and hooks installed by one thread, before training; hooks run on the thread that
// calls forward.
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fsdp/errors.hpp"
#include "fsdp/wrap/module_class.hpp"

namespace fsdp {

/// The tensors among a forward's inputs or outputs, in order. A hook returns as many, replaced or not.
using TensorList = std::vector<at::Tensor>;

struct ForwardHooks {
  std::function<TensorList(TensorList)> before;  ///< called before everything else in forward
  std::function<TensorList(TensorList)> after;   ///< called after everything else in forward
  /// Called in place of `after` where forward or one of its hooks has thrown. That exception goes on behind it, and what it
  /// throws itself (a peer that is gone ends its waits, too) is dropped. May be null.
  std::function<void()> failed = nullptr;
};

/// Installs the hooks on a module of its family, for the rest of the module's life, and returns true; else
/// false. Several installations on one module: the last `before` runs first, the last `after` runs last. A
/// module owns its hooks; hooks do not own the module.
using ForwardHookAdapter = std::function<bool(torch::nn::Module& module, const ForwardHooks& hooks)>;

/// Later adapters are asked first.
void register_forward_hook_adapter(ForwardHookAdapter adapter);

/// Throws RuntimeError for a module that nobody can hook.
void install_forward_hooks(torch::nn::Module& module, const ForwardHooks& hooks);

/// A hook slot to derive from. Known to the library without an adapter.
class HookSlot {
 public:
  virtual ~HookSlot() = default;
  void add_forward_hooks(ForwardHooks hooks) { hooks_.push_back(std::move(hooks)); }
  bool has_forward_hooks() const { return !hooks_.empty(); }
  TensorList run_before(TensorList inputs) const;
  TensorList run_after(TensorList outputs) const;
  void run_failed() const;

 private:
  std::vector<ForwardHooks> hooks_;
};

// Declared ahead of the first use: types of std do not lead a look-up by argument into this namespace.
template <class F>
void visit_tensors(at::Tensor& tensor, F&& f);
template <class T, class F>
void visit_tensors(std::optional<T>& value, F&& f);
template <class T, class F>
void visit_tensors(std::vector<T>& values, F&& f);
template <class T, size_t N, class F>
void visit_tensors(std::array<T, N>& values, F&& f);
template <class A, class B, class F>
void visit_tensors(std::pair<A, B>& value, F&& f);
template <class... T, class F>
void visit_tensors(std::tuple<T...>& value, F&& f);
template <class V, class F>
void visit_tensors(std::map<std::string, V>& values, F&& f);
template <class V, class F>
void visit_tensors(std::unordered_map<std::string, V>& values, F&& f);

template <class T, class F>
void visit_if_possible(T& value, F&& f) {
  if constexpr (requires { visit_tensors(value, f); }) visit_tensors(value, f);
}

template <class F>
void visit_tensors(at::Tensor& tensor, F&& f) {
  if (tensor.defined()) f(tensor);
}
template <class T, class F>
void visit_tensors(std::optional<T>& value, F&& f) {
  if (value) visit_if_possible(*value, f);
}
template <class T, class F>
void visit_tensors(std::vector<T>& values, F&& f) {
  for (auto& value : values) visit_if_possible(value, f);
}
template <class T, size_t N, class F>
void visit_tensors(std::array<T, N>& values, F&& f) {
  for (auto& value : values) visit_if_possible(value, f);
}
template <class A, class B, class F>
void visit_tensors(std::pair<A, B>& value, F&& f) {
  visit_if_possible(value.first, f);
  visit_if_possible(value.second, f);
}
template <class... T, class F>
void visit_tensors(std::tuple<T...>& value, F&& f) {
  std::apply([&](auto&... element) { (visit_if_possible(element, f), ...); }, value);
}
template <class V, class F>
void visit_tensors(std::map<std::string, V>& values, F&& f) {
  for (auto& [key, value] : values) visit_if_possible(value, f);
}
template <class V, class F>
void visit_tensors(std::unordered_map<std::string, V>& values, F&& f) {
  for (auto& [key, value] : values) visit_if_possible(value, f);
}

/// Throws RuntimeError unless a hook that was given `given` tensors returned as many.
inline void require_as_many(const TensorList& returned, size_t given, const char* moment) {
  if (returned.size() == given) return;
  throw RuntimeError("A hook that runs " + std::string(moment) + " forward was given " +
                     std::to_string(given) + " tensors and returned " + std::to_string(returned.size()) +
                     ".");
}

/// Runs `forward(arguments...)` between the slot's hooks; the arguments are changed in place. Also the way to
/// run another method of a sharded module as if it were its forward.
template <class Forward, class... Args>
auto run_hooked(const HookSlot& slot, Forward&& forward, Args&... arguments) try {
  TensorList tensors;
  (visit_if_possible(arguments, [&](at::Tensor& tensor) { tensors.push_back(tensor); }), ...);
  auto given = tensors.size();
  tensors = slot.run_before(std::move(tensors));
  require_as_many(tensors, given, "before");
  size_t next = 0;
  (visit_if_possible(arguments, [&](at::Tensor& tensor) { tensor = tensors[next++]; }), ...);
  tensors.clear();

  auto result = forward(arguments...);
  visit_if_possible(result, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
  given = tensors.size();
  tensors = slot.run_after(std::move(tensors));
  require_as_many(tensors, given, "after");
  next = 0;
  visit_if_possible(result, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
  return result;
} catch (...) {
  slot.run_failed();
  throw;
}

/// A hooked module as messages show it: by the plain name of its class, where M has no text of its own.
template <class M>
void print_hooked(const M& module, std::ostream& stream) {
  if constexpr (requires {
                  requires std::is_same_v<decltype(&M::pretty_print),
                                          void (torch::nn::Module::*)(std::ostream&) const>;
                }) {
    stream << nominal_classes(module).front();
  } else {
    module.M::pretty_print(stream);
  }
}

/// In place of a signature: M::forward is overloaded, or a template.
struct SeveralForwards {};
template <class M>
auto forward_signature(int) -> decltype(&M::forward);
template <class M>
SeveralForwards forward_signature(...);

template <class M, class Signature = decltype(forward_signature<M>(0))>
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

  /// With fewer arguments than it has parameters: the rest are M::forward's defaults.
  template <class... Given>
  requires(sizeof...(Given) < sizeof...(Args)) && requires(M& m, Given... given) { m.forward(given...); }
  R with_defaults(Given... given) {
    if (!has_forward_hooks()) return M::forward(given...);
    return run_hooked(
        *this, [this](Given&... a) -> R { return M::forward(a...); }, given...);
  }

  /// Throws InvalidState once there are hooks: the copy of a sharded module would share its shards.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    if (has_forward_hooks()) {
      throw InvalidState("FSDP does not support deepcopy. Please use state dict for serialization.");
    }
    return std::make_shared<Hooked>(dynamic_cast<const M&>(*M::clone(device)));
  }

  void pretty_print(std::ostream& stream) const override { print_hooked<M>(*this, stream); }
};

template <class M, class Owner, class R, class... Args>
class Hooked<M, R (Owner::*)(Args...) const> : public Hooked<M, R (Owner::*)(Args...)> {
 public:
  using Hooked<M, R (Owner::*)(Args...)>::Hooked;
};

/// Each overload is hooked. What needs one signature (torch::nn::Sequential, AnyModule) cannot hold it, as it
/// cannot hold M.
template <class M>
class Hooked<M, SeveralForwards> : public M, public HookSlot {
 public:
  using M::M;
  explicit Hooked(const M& unhooked) : M(unhooked) {}

  template <class... Given>
  auto forward(Given... given) -> decltype(std::declval<M&>().forward(given...)) {
    if (!has_forward_hooks()) return M::forward(given...);
    return run_hooked(
        *this, [this](Given&... a) { return M::forward(a...); }, given...);
  }

  /// As above.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    if (has_forward_hooks()) {
      throw InvalidState("FSDP does not support deepcopy. Please use state dict for serialization.");
    }
    return std::make_shared<Hooked>(dynamic_cast<const M&>(*M::clone(device)));
  }

  void pretty_print(std::ostream& stream) const override { print_hooked<M>(*this, stream); }
};

/// The holder that FSDP_HOOKED_MODULE makes: layer(x) takes default arguments as the plain holder's does.
template <class M>
class HookedHolder : public torch::nn::ModuleHolder<Hooked<M>> {
 public:
  using torch::nn::ModuleHolder<Hooked<M>>::ModuleHolder;

  template <class... Given>
  auto operator()(Given&&... given) {
    if constexpr (requires { this->get()->forward(std::forward<Given>(given)...); }) {
      return this->get()->forward(std::forward<Given>(given)...);
    } else {
      return this->get()->with_defaults(std::forward<Given>(given)...);
    }
  }
};

}  // namespace fsdp

#define FSDP_HOOKED_MODULE(Name, Impl)            \
  class Name : public fsdp::HookedHolder<Impl> {  \
   public:                                        \
    using fsdp::HookedHolder<Impl>::HookedHolder; \
  }
