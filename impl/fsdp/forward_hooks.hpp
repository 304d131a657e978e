#pragma once
// C++ modules have no forward hooks, so a module must be built to be hooked. Two ways:
//  - `Hooked<M>` (hooked.hpp) gives any torch::nn module class a hook slot;
//  - a family of modules with slots of its own registers an adapter here.
#include <torch/nn/module.h>

#include <functional>
#include <vector>

namespace fsdp {

/// The tensors among a forward's inputs or outputs, in order. A hook returns as many, replaced or not.
using TensorList = std::vector<at::Tensor>;

struct ForwardHooks {
  std::function<TensorList(TensorList)> before;  ///< called before everything else in forward
  std::function<TensorList(TensorList)> after;   ///< called after everything else in forward
};

/// Installs the hooks on a module of its family, for the rest of the module's life, and returns true; else
/// false. Several installations on one module: the last `before` runs first, the last `after` runs last. A
/// module owns its hooks; hooks do not own the module. For a container without forward it calls
/// refuse_container.
using ForwardHookAdapter = std::function<bool(torch::nn::Module& module, const ForwardHooks& hooks)>;

/// Later adapters are asked first.
void register_forward_hook_adapter(ForwardHookAdapter adapter);

/// Throws ValueError: this module's class holds modules and has no forward of its own.
[[noreturn]] void refuse_container(const torch::nn::Module& module);

/// Throws ValueError for a container without forward, RuntimeError for a module that nobody can hook.
void install_forward_hooks(torch::nn::Module& module, const ForwardHooks& hooks);

/// A hook slot to derive from. Known to the library without an adapter.
class HookSlot {
 public:
  virtual ~HookSlot() = default;
  void add_forward_hooks(ForwardHooks hooks) { hooks_.push_back(std::move(hooks)); }
  bool has_forward_hooks() const { return !hooks_.empty(); }
  TensorList run_before(TensorList inputs) const;
  TensorList run_after(TensorList outputs) const;

 private:
  std::vector<ForwardHooks> hooks_;
};

}  // namespace fsdp
