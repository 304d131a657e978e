#include "harness/sim/scopes.hpp"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "harness/sim/cost.hpp"
#include "harness/sim/memory.hpp"

namespace fsdp_cts::sim {
namespace {

std::vector<std::string>& open_scopes() {
  static thread_local std::vector<std::string> scopes;
  return scopes;
}

std::unique_ptr<at::ObserverContext> begin_scope(const at::RecordFunction& function) {
  open_scopes().emplace_back(function.name());
  return nullptr;
}

void end_scope(const at::RecordFunction&, at::ObserverContext*) {
  if (!open_scopes().empty()) open_scopes().pop_back();
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  }
}

// These look at a tensor's shape, or at where it lies, and not at its elements.
bool looks_at_shape_alone(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::empty_like",    "aten::zeros_like",        "aten::ones_like",
      "aten::full_like",     "aten::rand_like",         "aten::randn_like",
      "aten::new_empty",     "aten::new_zeros",         "aten::new_ones",
      "aten::new_full",      "aten::new_empty_strided", "aten::is_pinned",
      "aten::record_stream", "aten::result_type",       "aten::set_",
      "aten::resize_",       "aten::is_same_size",      "aten::_has_compatible_shallow_copy_type",
      "aten::set_data",      "aten::requires_grad_",    "aten::retain_grad"};
  return names.contains(name);
}

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  const auto inputs = function.inputs();
  bool pinned = false;
  bool on_device = false;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.device().type() == device_type)
        on_device = true;
      else if (tensor.device().is_cpu() && allocation_of(tensor) != nullptr)
        pinned = true;
    });
  }
  // A copy between host and device is the device's affair.
  if (!pinned || on_device) return nullptr;
  const auto name = function.operator_name();
  if (!name) return nullptr;
  const auto handle = c10::Dispatcher::singleton().findSchema(*name);
  if (!handle || makes_a_view(handle->schema()) || looks_at_shape_alone(name->name)) return nullptr;
  const auto step = Checker::instance().on_host(name->name, scope());
  const auto& arguments = handle->schema().arguments();
  for (std::size_t i = 0; i < inputs.size() && i < arguments.size(); ++i) {
    const auto* const alias = arguments[i].alias_info();
    const bool write = alias != nullptr && alias->isWrite();
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (tensor.device().is_cpu()) note(step, tensor, write);
    });
  }
  return nullptr;
}

[[maybe_unused]] const auto scopes_are_seen = at::addGlobalCallback(
    at::RecordFunctionCallback(begin_scope, end_scope).scopes({at::RecordScope::USER_SCOPE}));

}  // namespace

std::string_view scope() {
  const auto& scopes = open_scopes();
  return scopes.empty() ? std::string_view() : std::string_view(scopes.back());
}

void watch_the_host() {
  [[maybe_unused]] static const auto watching = at::addGlobalCallback(
      at::RecordFunctionCallback(begin_operator).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

}  // namespace fsdp_cts::sim
