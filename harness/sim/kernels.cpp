// Operators of the device: the CPU's kernels on the same memory, with what they read and write noted. Only what
// makes, changes or moves memory is written out here; everything else goes through `run_on_cpu`.
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <unordered_set>

#include "harness/sim/cost.hpp"
#include "harness/sim/memory.hpp"
#include "harness/sim/scopes.hpp"
#include "harness/sim/streams.hpp"

namespace fsdp_cts::sim {
namespace {

using torch::jit::Stack;

constexpr c10::DispatchKeySet key_set(c10::DispatchKey::PrivateUse1);

bool is_sim(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == device_type;
}

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout>, std::optional<c10::Device> device,
                               std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &device_allocator(), key_set, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &device_allocator(), key_set,
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<c10::MemoryFormat> format) {
  const std::size_t offset = static_cast<std::size_t>(self.storage_offset()) * self.itemsize();
  const std::size_t due = offset + static_cast<std::size_t>(c10::multiply_integers(size)) * self.itemsize();
  c10::StorageImpl& storage = *self.storage().unsafeGetStorageImpl();
  if (due > storage.nbytes()) resize_storage(storage, due);
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  if (format && *format != c10::MemoryFormat::Preserve)
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, c10::Storage source, std::int64_t offset,
                               c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, device_allocator().allocate(0), &device_allocator(), true));
  return at::native::set_storage_cpu_(self, std::move(storage), 0, {0}, {});
}

// An operator that hands a value to the host returns when the stream has come that far.
void host_waits_for_current_stream(std::string_view operation) {
  if (!Checker::instance().suspended())
    Checker::instance().host_waits_for(current_timeline(), operation, scope());
}

// Between two devices: on the source's current stream, which waits before for what the destination's has been given and
// which that one waits for after, as CUDA does.
at::Tensor copy_between_devices(const at::Tensor& self, const at::Tensor& destination) {
  Checker& checker = Checker::instance();
  const c10::DeviceGuard guard(self.device());
  const InsideTheDevice inside;
  const Timeline from = current_timeline();
  const Timeline to = timeline_of(current_stream(destination.device().index()));
  checker.wait(from, checker.record(to));
  const auto step = checker.launch(from, "copy from device to device", scope());
  note(step, self, false);
  note(step, destination, true);
  on_cpu(destination).copy_(on_cpu(self));
  if (const Machine* const machine = chosen_machine())
    spend(*machine, step, Kind::copy, duration_of_copy(*machine, bytes_of(destination)));
  checker.wait(to, checker.record(from));
  return destination;
}

// Within a device on the current stream. Between host and device, as CUDA: asynchronous when asked for, where the
// host's memory is pinned; from pageable memory the call returns when the elements have been read, into it when
// they have been written.
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  if (is_sim(self) && is_sim(destination) && self.device() != destination.device())
    return copy_between_devices(self, destination);
  const at::Tensor& of_device = is_sim(destination) ? destination : self;
  const c10::DeviceGuard guard(of_device.device());
  const InsideTheDevice inside;
  const bool to_device = is_sim(destination);
  const bool between = is_sim(self) != to_device;
  const char* const name = !between    ? "aten::copy_"
                           : to_device ? "copy from host to device"
                                       : "copy from device to host";
  const at::Tensor& of_host = to_device ? self : destination;
  const bool pinned = between && allocation_of(of_host) != nullptr;
  const auto step = Checker::instance().launch(current_timeline(), name, scope());
  note(step, self, false);
  note(step, destination, true);
  at::Tensor target = is_sim(destination) ? on_cpu(destination) : destination;
  target.copy_(is_sim(self) ? on_cpu(self) : self);
  if (const Machine* const machine = chosen_machine()) {
    if (between)
      spend(*machine, step, Kind::copy, duration_of_copy(*machine, bytes_of(destination)));
    else
      spend(*machine, step, Kind::compute,
            duration_of(*machine, {.bytes = bytes_of(self) + bytes_of(destination)}));
  }
  const bool returns_at_once = !between || (non_blocking && (pinned || to_device));
  if (!returns_at_once) host_waits_for_current_stream(name);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  destination.resize_(self.sizes());
  return copy_from(self, destination, false);
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  const InsideTheDevice inside;
  const auto step = Checker::instance().launch(current_timeline(), "aten::_local_scalar_dense", scope());
  note(step, self, false);
  if (const Machine* const machine = chosen_machine())
    spend(*machine, step, Kind::copy, duration_of_copy(*machine, bytes_of(self)));
  host_waits_for_current_stream("aten::_local_scalar_dense");
  return on_cpu(self).item();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator().recordStream(self.storage().data_ptr(), stream);
}

bool has_compatible_shallow_copy_type(const at::Tensor&, const at::Tensor&) {
  return true;  // both are plain strided tensors: FSDP1 lets a parameter change from host to device by `.data`
}

// How many elements come out depends on values, so the host waits for them.
bool decides_a_shape(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::nonzero",    "aten::masked_select",      "aten::_unique2",
      "aten::unique_dim", "aten::unique_consecutive", "aten::repeat_interleave"};
  return names.contains(name);
}

// What an argument's schema says, and what it leaves unsaid: a batch norm writes its running statistics.
bool is_written(const c10::FunctionSchema& schema, std::size_t argument) {
  const auto* const alias = schema.arguments()[argument].alias_info();
  if (alias != nullptr) return alias->isWrite();
  return schema.operator_name().name == "aten::native_batch_norm" && (argument == 3 || argument == 4);
}

// One call on its way to the CPU.
class CpuCall {
 public:
  CpuCall(const c10::OperatorHandle& op, Stack& stack)
      : op_(op), stack_(stack), schema_(op.schema()), guard_(device_of_call()) {}

  void run() {
    const std::size_t count = schema_.arguments().size();
    step_ = Checker::instance().launch(current_timeline(), schema_.operator_name().name, scope());
    arguments_.assign(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    for (std::size_t i = 0; i < count; ++i)
      stack_[stack_.size() - count + i] = to_cpu(arguments_[i], is_written(schema_, i));
    // A boxed operator with several outputs takes its arguments off the stack before it returns references to them.
    const std::vector<c10::IValue> kept(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    {
      const InsideTheDevice inside;
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    }
    for (const auto& [tensor, result] : empty_outputs_) take_resized(tensor, result);
    const auto& returns = schema_.returns();
    bool answers_host = decides_a_shape(schema_.operator_name().name);
    for (std::size_t i = 0; i < returns.size(); ++i) {
      c10::IValue& value = stack_[stack_.size() - returns.size() + i];
      if (!value.isTensor() && !value.isTensorList() && !value.isNone()) answers_host = true;
      value = from_cpu(std::move(value), returns[i]);
    }
    take_time();
    if (answers_host) host_waits_for_current_stream(schema_.operator_name().name);
  }

 private:
  void take_time() const {
    const Machine* const machine = chosen_machine();
    if (machine == nullptr || makes_a_view(schema_)) return;
    const c10::ArrayRef<c10::IValue> stack(stack_);
    const std::size_t results = schema_.returns().size();
    const Cost cost = cost_of(schema_, arguments_, stack.slice(stack.size() - results, results));
    spend(*machine, step_, Kind::compute, duration_of(*machine, cost));
  }

  c10::Device device_of_call() const {
    const std::size_t count = schema_.arguments().size();
    for (std::size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      const c10::IValue& value = stack_[i];
      if (value.isTensor() && is_sim(value.toTensor())) return value.toTensor().device();
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector())
          if (is_sim(tensor)) return tensor.device();
      }
      if (value.isDevice() && value.toDevice().type() == device_type && value.toDevice().has_index())
        return value.toDevice();
    }
    return {device_type, current_device()};
  }

  at::Tensor to_cpu(const at::Tensor& tensor, bool write) {
    if (!is_sim(tensor)) return tensor;
    TORCH_CHECK(tensor.device() == guard_.current_device(),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                guard_.current_device(), " and ", tensor.device(), "! (when calling ",
                schema_.operator_name().name, ")");
    note(step_, tensor, write);
    if (!write || tensor.numel() > 0) return on_cpu(tensor);
    return empty_outputs_.emplace_back(tensor, at::empty(tensor.sizes(), on_cpu(tensor).options())).second;
  }

  // An operator gives an output without elements the size that it needs.
  void take_resized(const at::Tensor& tensor, const at::Tensor& result) const {
    if (result.sizes() == tensor.sizes()) return;
    resize_(tensor, result.sizes(), std::nullopt);
    note(step_, tensor, true);
    const InsideTheDevice inside;
    on_cpu(tensor).copy_(result);
  }

  c10::IValue to_cpu(const c10::IValue& value, bool write) {
    if (value.isTensor()) return to_cpu(value.toTensor(), write);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to_cpu(tensor, write));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
        list.push_back(tensor ? std::optional(to_cpu(*tensor, write)) : std::nullopt);
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == device_type) return c10::Device(c10::kCPU);
    // Random numbers are the CPU's, in its order.
    if (value.isGenerator() && value.toGenerator().device().type() == device_type) return {};
    return value;
  }

  c10::IValue from_cpu(c10::IValue value, const c10::Argument& described) const {
    const auto* const alias = described.alias_info();
    if (alias != nullptr && alias->isWrite()) return argument_with(*alias);
    if (value.isTensor() && value.toTensor().defined()) {
      if (alias != nullptr) {
        const at::Tensor base = argument_with(*alias).toTensor();
        const at::Tensor view = value.toTensor();
        return at::native::as_strided_tensorimpl(base, view.sizes(), view.strides(), view.storage_offset());
      }
      return to_device(value.toTensor());
    }
    if (value.isTensorList()) {
      TORCH_CHECK(alias == nullptr, "device sim has no kernel for the views of ", op_.operator_name());
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to_device(tensor));
      return list;
    }
    return value;
  }

  at::Tensor to_device(const at::Tensor& result) const {
    if (!result.defined() || is_sim(result)) return result;
    const at::Tensor made = at::detail::empty_strided_generic(
        result.sizes(), result.strides(), &device_allocator(), key_set, result.scalar_type());
    note(step_, made, true);
    const InsideTheDevice inside;
    on_cpu(made).copy_(result);
    return made;
  }

  const c10::IValue& argument_with(const c10::AliasInfo& alias) const {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const auto* const other = schema_.arguments()[i].alias_info();
      if (other != nullptr && other->beforeSets() == alias.beforeSets()) return arguments_[i];
    }
    TORCH_CHECK(false, "device sim cannot tell which argument ", op_.operator_name(), " returns");
  }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  const c10::FunctionSchema& schema_;
  c10::DeviceGuard guard_;
  Checker::Step step_;
  std::vector<c10::IValue> arguments_;
  std::vector<std::pair<at::Tensor, at::Tensor>> empty_outputs_;  // on the device, on the CPU
};

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  CpuCall(op, *stack).run();
}

// PyTorch leaves convolutions of a foreign device to that device.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                       c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  Stack stack;
  torch::jit::push(stack, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  run_on_cpu(op, &stack);
  return stack.back().toTensor();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
    c10::SymIntArrayRef output_padding, c10::SymInt groups, std::array<bool, 3> wanted) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  Stack stack;
  const std::optional<std::vector<std::int64_t>> bias_sizes =
      std::vector<std::int64_t>{weight.size(transposed ? 1 : 0)};
  torch::jit::push(stack, gradient, input, weight, bias_sizes, stride, padding, dilation, transposed,
                   output_padding, groups, wanted);
  run_on_cpu(op, &stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty_memory_format);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", [](const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                                std::optional<std::int64_t> offset) {
    return at::native::as_strided_tensorimpl(self, size, stride, offset);
  });
  library.impl("view",
               [](const at::Tensor& self, c10::IntArrayRef size) { return at::native::view(self, size); });
  library.impl("_reshape_alias", [](const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
    return at::native::_reshape_alias(self, size, stride);
  });
  library.impl("unfold", [](const at::Tensor& self, std::int64_t dimension, std::int64_t size,
                            std::int64_t step) { return at::native::unfold(self, dimension, size, step); });
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage_storage_offset", &set_source_storage);
  library.impl("set_.source_Storage", [](at::Tensor& self, c10::Storage source) -> at::Tensor& {
    return at::native::set_(self, std::move(source));
  });
  library.impl("set_.source_Tensor", [](at::Tensor& self, const at::Tensor& source) -> at::Tensor& {
    return at::native::set_tensor_(self, source);
  });
  library.impl("set_", &set_nothing);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar_dense);
  library.impl("record_stream", &record_stream);
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);

  // Of these the CPU has a kernel and every other device a composition of others, which rounds differently.
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasSchema() || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1))
      continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
    }
  }
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

}  // namespace
}  // namespace fsdp_cts::sim
