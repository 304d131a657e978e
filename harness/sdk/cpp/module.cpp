#include "harness/sdk/cpp/module.hpp"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <unordered_set>

namespace fsdp_cts::sdk {
namespace {

// Of the node that gave a module's output: the engine runs it after the hooks of that output, which is where
// an FSDP library waits for backward, and right before the node itself.
class BackwardMarker : public torch::autograd::FunctionPreHook {
 public:
  BackwardMarker(std::shared_ptr<Trace> trace, std::string path)
      : trace_(std::move(trace)), path_(std::move(path)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    trace_->compute(path_);
    return gradients;
  }

 private:
  std::shared_ptr<Trace> trace_;
  std::string path_;
};

}  // namespace

Module::Module(std::string type, std::string class_name)
    : torch::nn::Module(class_name), type_(std::move(type)), class_name_(std::move(class_name)) {}

Tensors Module::hooked(Tensors inputs, const std::function<Tensors(Tensors)>& run) const try {
  for (const Hook& hook : pre_forward_) inputs = hook(std::move(inputs));
  Tensors outputs = run(std::move(inputs));
  for (const Hook& hook : post_forward_) outputs = hook(std::move(outputs));
  return outputs;
} catch (...) {
  for (const auto& hook : failed_forward_) {
    try {
      hook();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the forward's own exception is the one to hear of
    }
  }
  throw;
}

Tensors Module::forward(Tensors inputs) {
  return hooked(std::move(inputs), [this](Tensors hooked_inputs) {
    if (trace_) trace_->compute(path_);
    Tensors outputs = body(std::move(hooked_inputs));
    if (trace_ && !outputs.empty() && outputs.front().grad_fn())
      outputs.front().grad_fn()->add_pre_hook(std::make_unique<BackwardMarker>(trace_, path_));
    return outputs;
  });
}

at::Tensor Module::forward(at::Tensor input) {
  Tensors outputs = forward(Tensors{std::move(input)});
  TORCH_CHECK(outputs.size() == 1, "module \"", path_, "\" gave ", outputs.size(),
              " outputs where one was expected");
  return std::move(outputs.front());
}

Tensors Module::call_method(const std::string& name, Tensors inputs) {
  if (!hooked_methods_.contains(name)) return method_body(name, &inputs);
  return hooked(std::move(inputs), [&](Tensors hooked_inputs) { return method_body(name, &hooked_inputs); });
}

void Module::hook_method(const std::string& name) {
  method_body(name, nullptr);
  hooked_methods_.insert(name);
}

Tensors Module::method_body(const std::string& name, Tensors*) {
  C10_THROW_ERROR(IndexError,
                  "module \"" + path_ + "\" (" + class_name_ + ") does not have a method " + name);
}

void Module::add_pre_forward_hook(Hook hook, bool prepend) {
  pre_forward_.insert(prepend ? pre_forward_.begin() : pre_forward_.end(), std::move(hook));
}

void Module::add_post_forward_hook(Hook hook, bool prepend) {
  post_forward_.insert(prepend ? post_forward_.begin() : post_forward_.end(), std::move(hook));
}

void Module::add_failed_forward_hook(std::function<void()> hook) {
  failed_forward_.push_back(std::move(hook));
}

const at::Tensor& Module::parameter(const std::string& name) const {
  if (const at::Tensor* tensor = parameters_.find(name)) return *tensor;
  const auto last = last_registered_.find(name);
  TORCH_CHECK_INDEX(last != last_registered_.end(), "module \"", path_, "\" (", class_name_,
                    ") has no parameter \"", name, "\"");
  return last->second;
}

void Module::set_parameter(const std::string& name, at::Tensor tensor) {
  at::Tensor* slot = parameters_.find(name);
  TORCH_CHECK_INDEX(slot, "module \"", path_, "\" (", class_name_, ") has no parameter \"", name, "\"");
  *slot = last_registered_[name] = std::move(tensor);
}

std::vector<std::string> Module::parameter_names() const {
  return parameters_.keys();
}

const at::Tensor& Module::buffer(const std::string& name) const {
  for (const auto& [key, tensor] : buffers_in_order_) {
    if (key == name) return tensor;
  }
  C10_THROW_ERROR(IndexError,
                  "module \"" + path_ + "\" (" + class_name_ + ") has no buffer \"" + name + "\"");
}

// The dictionary of the base class is private: the handle stays, its contents change.
void Module::set_buffer(const std::string& name, const at::Tensor& value) {
  buffer(name).set_data(value);
}

std::vector<std::string> Module::buffer_names() const {
  std::vector<std::string> names;
  for (const auto& [key, tensor] : buffers_in_order_) names.push_back(key);
  return names;
}

Module& Module::child(const std::string& dotted_path) {
  if (dotted_path.empty()) return *this;
  const auto dot = dotted_path.find('.');
  const std::string head = dotted_path.substr(0, dot);
  for (const auto& [name, module] : children_in_order_) {
    if (name == head) return dot == std::string::npos ? *module : module->child(dotted_path.substr(dot + 1));
  }
  C10_THROW_ERROR(IndexError,
                  "module \"" + path_ + "\" (" + class_name_ + ") has no child \"" + dotted_path + "\"");
}

void Module::declare_parameter(const std::string& name, at::Tensor tensor, bool requires_grad) {
  last_registered_[name] = tensor;
  if (tensor.defined()) {
    register_parameter(name, std::move(tensor), requires_grad);
  } else {
    parameters_.insert(name, at::Tensor());
  }
}

void Module::declare_buffer(const std::string& name, at::Tensor tensor) {
  buffers_in_order_.emplace_back(name, register_buffer(name, std::move(tensor)));
}

void Module::declare_child(const std::string& name, std::shared_ptr<Module> child) {
  register_module(name, child);
  children_in_order_.emplace_back(name, std::move(child));
}

void Module::set_path(std::string path) {
  path_ = std::move(path);
}

namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void visit(Module& module, const std::string& prefix, std::unordered_set<Module*>& seen,
           std::vector<std::pair<std::string, Module*>>& out) {
  if (!seen.insert(&module).second) return;
  out.emplace_back(prefix, &module);
  for (const auto& [name, child] : module.child_modules()) visit(*child, join(prefix, name), seen, out);
}

}  // namespace

std::vector<std::pair<std::string, Module*>> named_modules(Module& root) {
  std::vector<std::pair<std::string, Module*>> modules;
  std::unordered_set<Module*> seen;
  visit(root, "", seen, modules);
  return modules;
}

void trace_computation(Module& root, const std::shared_ptr<Trace>& trace) {
  static const std::unordered_set<std::string> holders = {"Sequential", "ModuleList", "ModuleDict", "Graph"};
  if (!holders.contains(root.type())) return root.trace_computation(trace);
  for (const auto& [name, child] : root.child_modules()) trace_computation(*child, trace);
}

std::vector<Slot> parameter_slots_with_ties(Module& root) {
  std::vector<Slot> slots;
  for (const auto& [prefix, module] : named_modules(root)) {
    for (const std::string& key : module->parameter_names()) {
      if (module->parameter(key).defined()) slots.push_back({join(prefix, key), module, key});
    }
  }
  return slots;
}

std::vector<Slot> parameter_slots(Module& root) {
  std::vector<Slot> slots;
  std::unordered_set<const at::TensorImpl*> seen;
  for (Slot& slot : parameter_slots_with_ties(root)) {
    if (seen.insert(slot.tensor().unsafeGetTensorImpl()).second) slots.push_back(std::move(slot));
  }
  return slots;
}

std::vector<std::pair<std::string, at::Tensor>> named_buffers(Module& root) {
  std::vector<std::pair<std::string, at::Tensor>> buffers;
  for (const auto& [prefix, module] : named_modules(root)) {
    for (const std::string& key : module->buffer_names())
      buffers.emplace_back(join(prefix, key), module->buffer(key));
  }
  return buffers;
}

}  // namespace fsdp_cts::sdk
