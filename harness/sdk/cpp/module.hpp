// A module made from a scenario's description (LANGUAGE.md §3): an ordinary torch::nn::Module with forward
// hooks, which LibTorch's own modules lack, so that any FSDP library can interpose without knowing the
// concrete layer.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/sdk/cpp/tensors.hpp"
#include "harness/sdk/cpp/trace.hpp"

namespace fsdp_cts::sdk {

// Gets what the next stage would have got and returns what it gets instead.
using Hook = std::function<Tensors(Tensors)>;

class Module : public torch::nn::Module {
 public:
  // `type` is the description's, `class_name` the nominal class that wrap policies and unit trees see.
  Module(std::string type, std::string class_name);

  const std::string& type() const { return type_; }
  const std::string& class_name() const { return class_name_; }
  const std::string& path() const { return path_; }  // fully-qualified name in its model, "" for the root

  // Pre-forward hooks in order, body, post-forward hooks in order. An exception ends it where it is thrown; the hooks for
  // failed forwards run, and it goes on.
  virtual Tensors forward(Tensors inputs);
  at::Tensor forward(at::Tensor input);  // one in, one out

  // A further body by its name, without hooks unless it is hooked: then as `forward`.
  Tensors call_method(const std::string& name, Tensors inputs);
  void hook_method(const std::string& name);

  // Appended, or put before all present ones. A hook stays for the module's life.
  void add_pre_forward_hook(Hook hook, bool prepend = false);
  void add_post_forward_hook(Hook hook, bool prepend = false);
  void add_failed_forward_hook(std::function<void()> hook);

  // From now on the trace shows when this module's body begins, and when its backward does: after every hook
  // of its output and before the first of its own gradients.
  void trace_computation(std::shared_ptr<Trace> trace) { trace_ = std::move(trace); }

  // What the body reads at each forward: the registered parameter, or, where a library has taken that out of
  // the registration, the tensor that was there last, as a typed member would keep it. May be undefined,
  // never unknown: throws c10::IndexError. Assigning another tensor, a parameter or a plain view, changes
  // this slot only; tied slots elsewhere keep theirs.
  const at::Tensor& parameter(const std::string& name) const;
  void set_parameter(const std::string& name, at::Tensor tensor);
  std::vector<std::string> parameter_names() const;  // own, in registration order

  const at::Tensor& buffer(const std::string& name) const;
  void set_buffer(const std::string& name,
                  const at::Tensor& value);  // other dtypes allowed; the handle stays the same
  std::vector<std::string> buffer_names() const;

  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& child_modules() const {
    return children_in_order_;
  }
  Module& child(const std::string& dotted_path);  // "" is the module itself; throws c10::IndexError

  // For the builder.
  void declare_parameter(const std::string& name, at::Tensor tensor, bool requires_grad = true);
  void declare_buffer(const std::string& name, at::Tensor tensor);
  void declare_child(const std::string& name, std::shared_ptr<Module> child);
  void set_path(std::string path);

 protected:
  virtual Tensors body(Tensors inputs) = 0;
  // Throws c10::IndexError for a method that this module does not have, also when `inputs` is null.
  virtual Tensors method_body(const std::string& name, Tensors* inputs);

 private:
  std::string type_, class_name_, path_;
  Tensors hooked(Tensors inputs, const std::function<Tensors(Tensors)>& run) const;

  std::vector<Hook> pre_forward_, post_forward_;
  std::vector<std::function<void()>> failed_forward_;
  std::set<std::string> hooked_methods_;
  std::shared_ptr<Trace> trace_;
  std::map<std::string, at::Tensor> last_registered_;
  std::vector<std::pair<std::string, at::Tensor>> buffers_in_order_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_in_order_;
};

// Place of a parameter: the module that owns the slot, and its name there.
struct Slot {
  std::string name;  // fully-qualified, relative to the module asked
  Module* owner = nullptr;
  std::string key;
  const at::Tensor& tensor() const { return owner->parameter(key); }
};

// Registration order, own before children. `parameter_slots` gives a tied parameter once, at its first
// occurrence.
std::vector<Slot> parameter_slots(Module& root);
std::vector<Slot> parameter_slots_with_ties(Module& root);
std::vector<std::pair<std::string, at::Tensor>> named_buffers(Module& root);
// Every layer below root notes in the trace when it computes. Containers and graphs do not: their layers do.
void trace_computation(Module& root, const std::shared_ptr<Trace>& trace);
// Every module with its path relative to root, root first, registration order; a module met twice is given
// once.
std::vector<std::pair<std::string, Module*>> named_modules(Module& root);

}  // namespace fsdp_cts::sdk
