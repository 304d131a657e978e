#include "fsdp/hooks.hpp"

#include <utility>

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

std::vector<ForwardHookAdapter>& adapters() {
  static std::vector<ForwardHookAdapter> registered;
  return registered;
}

}  // namespace

void register_forward_hook_adapter(ForwardHookAdapter adapter) {
  adapters().push_back(std::move(adapter));
}

void install_forward_hooks(torch::nn::Module& module, const ForwardHooks& hooks) {
  for (auto adapter = adapters().rbegin(); adapter != adapters().rend(); ++adapter) {
    if ((*adapter)(module, hooks)) return;
  }
  if (auto* slot = dynamic_cast<HookSlot*>(&module)) {
    slot->add_forward_hooks(hooks);
    return;
  }
  throw RuntimeError(
      "fully_shard must run code before and after forward, which this module offers no hook for: " +
      c10::str(module) +
      "\nMake it with fsdp::Hooked<...>, derive it from fsdp::HookSlot, or register an adapter with "
      "fsdp::register_forward_hook_adapter.");
}

TensorList HookSlot::run_before(TensorList inputs) const {
  for (auto hooks = hooks_.rbegin(); hooks != hooks_.rend(); ++hooks)
    inputs = hooks->before(std::move(inputs));
  return inputs;
}

TensorList HookSlot::run_after(TensorList outputs) const {
  for (const auto& hooks : hooks_) outputs = hooks.after(std::move(outputs));
  return outputs;
}

void HookSlot::run_failed() const {
  for (const auto& hooks : hooks_) {
    try {
      if (hooks.failed) hooks.failed();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the forward's own exception is the one to hear of
    }
  }
}

}  // namespace fsdp
