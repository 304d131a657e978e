// torch.autocast("sim"): the operators that the CPU's autocast casts are cast alike, so that values stay the CPU's.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

#include "harness/sim/sim.hpp"

namespace fsdp_cts::sim {
namespace {

using Stack = torch::jit::Stack;

// PyTorch says of each operator that it has a kernel for the CPU's autocast, and not what that casts to. These cast to
// autocast's dtype, those below to the widest of their inputs, and all others to float32.
bool lowers(const std::string& name) {
  static const std::unordered_set<std::string> names = {"aten::_addmm_activation",
                                                        "aten::_convolution",
                                                        "aten::_native_multi_head_attention",
                                                        "aten::addbmm",
                                                        "aten::addmm",
                                                        "aten::baddbmm",
                                                        "aten::bmm",
                                                        "aten::conv1d",
                                                        "aten::conv2d",
                                                        "aten::conv3d",
                                                        "aten::conv_tbc",
                                                        "aten::conv_transpose1d",
                                                        "aten::conv_transpose2d",
                                                        "aten::conv_transpose3d",
                                                        "aten::linalg_vecdot",
                                                        "aten::linear",
                                                        "aten::matmul",
                                                        "aten::mkldnn_rnn_layer",
                                                        "aten::mm",
                                                        "aten::prelu",
                                                        "aten::scaled_dot_product_attention"};
  return names.contains(name);
}
bool promotes(const std::string& name) {
  return name == "aten::cat" || name == "aten::stack" || name == "aten::index_copy";
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  }
}

at::ScalarType dtype_for(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  at::ScalarType lower = at::autocast::get_autocast_dtype(device_type);
  if (lowers(name)) return lower;
  if (!promotes(name)) return at::kFloat;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      lower = at::autocast::prioritize(lower, tensor, device_type);
    });
  }
  return lower;
}

c10::IValue cast(at::ScalarType dtype, const c10::IValue& value) {
  if (value.isTensor()) return at::autocast::cached_cast(dtype, value.toTensor(), device_type);
  if (!value.isTensorList()) return value;
  return c10::List<at::Tensor>(at::autocast::cached_cast(dtype, value.toTensorVector(), device_type));
}

void call_cast(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  const std::size_t count = op.schema().arguments().size();
  const auto arguments = c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count);
  const at::ScalarType dtype = dtype_for(op.schema().operator_name().name, arguments);
  for (std::size_t i = stack->size() - count; i < stack->size(); ++i) (*stack)[i] = cast(dtype, (*stack)[i]);
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, library) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasSchema() || !op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&call_cast>());
  }
}

}  // namespace
}  // namespace fsdp_cts::sim
