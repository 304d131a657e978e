// The defaults: a plain model, not sharded, on one rank.
#include "harness/sdk/cpp/operations.hpp"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <set>
#include <thread>

#include "harness/protocol/pattern.hpp"
#include "harness/sdk/cpp/build_model.hpp"

namespace fsdp_cts::sdk {
namespace {

[[noreturn]] void not_supported(const std::string& what) {
  throw Error("NotImplementedError",
              "this testee has no " + what + "; its unsupported() should have said so");
}

Exposed copy_of(const std::string& name, const at::Tensor& tensor) {
  return {name, tensor.detach().clone(), whole(tensor.sizes().vec()), tensor.requires_grad(),
          tensor.scalar_type()};
}

// LibTorch keeps one hook a tensor: this is all of them, in the order of their registration.
class GradientHooks : public torch::autograd::PostAccumulateGradHook {
 public:
  void add(std::function<void(at::Tensor)> hook) { hooks_.push_back(std::move(hook)); }
  void operator()(const at::Tensor& parameter) override {
    for (const auto& hook : hooks_) hook(parameter);
  }

 private:
  std::vector<std::function<void(at::Tensor)>> hooks_;
};

Slot slot_of(Model& model, const std::string& name) {
  for (Slot& slot : parameter_slots_with_ties(*model.module)) {
    if (slot.name == name) return std::move(slot);
  }
  throw std::invalid_argument("model \"" + model.instance + "\" has no parameter \"" + name + "\"");
}

}  // namespace

std::optional<std::string> Operations::unsupported(const Case&) const {
  return std::nullopt;
}
void Operations::rendezvous(const Case&) {}
void Operations::shard(Model&) {}

void Operations::materialize(Model& model) {
  const Json& description = context().a_case.models.at(model.instance);
  model.module = build_model(description, context().data, model.instance, device(), context().recorder);
}

void Operations::cast(Model& model, at::ScalarType dtype, const std::string& match) {
  const Pattern names(match);
  const auto convert = [dtype](at::Tensor tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.detach().to(dtype));
  };
  for (const Slot& slot : parameter_slots(*model.module)) {
    if (match.empty() || names.found_in(slot.name)) convert(slot.tensor());
  }
  if (!match.empty()) return;
  for (auto& [name, buffer] : named_buffers(*model.module)) convert(buffer);
}

void Operations::move(Model& model) {
  if (!device().is_cpu()) model.module->to(device());
}

std::unique_ptr<Optimizer> Operations::make_optimizer(Model& model, const Json& verb) {
  std::vector<OptimizerParameter> selected;
  for (const Parameter& parameter : parameters(model)) selected.push_back({parameter.name, parameter.value});
  return sdk::make_optimizer(verb, selected);
}

std::unique_ptr<Scaler> Operations::make_scaler(Model&, Optimizer& optimizer, const Json& verb) {
  return sdk::make_scaler(scaler_settings(verb), optimizer);
}

Tensors Operations::forward(Model& model, const std::string& module, Tensors inputs) {
  return model.module->child(module).forward(std::move(inputs));
}

Tensors Operations::call_method(Model& model, const std::string& module, const std::string& method,
                                Tensors inputs) {
  return model.module->child(module).call_method(method, std::move(inputs));
}

// A hook that a library has put around forward is around the method, too.
void Operations::register_forward_method(Model& model, const std::string& module, const std::string& method) {
  model.module->child(module).hook_method(method);
}

void Operations::backward(const at::Tensor& loss, bool create_graph) {
  loss.backward({}, std::nullopt, create_graph);
}

void Operations::hook_gradient(Model& model, const std::string& name, std::function<void(at::Tensor)> hook) {
  const at::Tensor parameter = exposed(model, name);
  if (auto* others =
          dynamic_cast<GradientHooks*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get()))
    return others->add(std::move(hook));
  auto hooks = std::make_unique<GradientHooks>();
  hooks->add(std::move(hook));
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(hooks));
}

void Operations::set_training(Model& model, bool training) {
  model.module->train(training);
}

void Operations::zero_grad(Model& model, bool set_to_none) {
  for (const Slot& slot : parameter_slots(*model.module)) {
    at::Tensor& gradient = at::Tensor(slot.tensor()).mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      gradient.detach_().zero_();
    }
  }
}

void Operations::control(Model&, const Json& verb) {
  not_supported("control " + verb.at("verb").get<std::string>());
}

std::function<void()> Operations::enter(Model&, const Json&) {
  return [] {};  // a plain model has nothing to summon and nothing to synchronise
}

at::Tensor Operations::clip_grad_norm(Model& model, double max_norm, double norm_type) {
  c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> gradients, norms;
  for (const Slot& slot : parameter_slots(*model.module)) {
    if (slot.tensor().grad().defined()) gradients.push_back(slot.tensor().grad());
  }
  for (const at::Tensor& gradient : gradients) norms.push_back(at::linalg_vector_norm(gradient, norm_type));
  if (norms.empty()) return at::zeros({});
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), norm_type);
  const at::Tensor coefficient = (max_norm / (total + 1e-6)).clamp_max(1.0);
  for (const at::Tensor& gradient : gradients) gradient.mul_(coefficient);
  return total;
}

void Operations::sleep(std::chrono::milliseconds duration) {
  std::this_thread::sleep_for(duration);
}
std::chrono::milliseconds Operations::clock() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}
void Operations::delay(std::chrono::milliseconds, const std::string&) {}

std::map<std::string, std::int64_t> Operations::memory() {
  const c10::Device device = this->device();
  if (device.is_cpu()) return {};
  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(device.type());
  if (!allocator.initialized()) return {{"current", 0}, {"peak", 0}};  // nobody has asked for any yet
  const auto bytes = allocator.getDeviceStats(device.index()).allocated_bytes[0];
  allocator.resetPeakStats(device.index());
  return {{"current", bytes.current}, {"peak", bytes.peak}};
}

void Operations::foreach_mul(const std::vector<at::Tensor>& tensors, double factor) {
  at::_foreach_mul_(tensors, factor);
}

std::vector<Parameter> Operations::parameters(Model& model) {
  std::vector<Parameter> out;
  for (const Slot& slot : parameter_slots(*model.module)) {
    const Placement placement = whole(slot.tensor().sizes().vec());
    out.push_back({slot.name, slot.tensor(), placement, slot.tensor().grad(), placement});
  }
  return out;
}

std::vector<Exposed> Operations::full_parameters(Model& model) {
  std::vector<Exposed> out;
  for (const Slot& slot : parameter_slots(*model.module)) out.push_back(copy_of(slot.name, slot.tensor()));
  return out;
}

std::vector<Exposed> Operations::buffers(Model& model) {
  std::vector<Exposed> out;
  for (const auto& [name, tensor] : named_buffers(*model.module)) out.push_back(copy_of(name, tensor));
  return out;
}

StateDict Operations::state_dict(Model& model, const std::string&) {
  StateDict state{full_parameters(model)};
  std::set<std::string> named;
  for (const Exposed& item : state.items) named.insert(item.name);
  // A tied parameter is there under each of its names.
  for (const Slot& slot : parameter_slots_with_ties(*model.module)) {
    if (!named.contains(slot.name)) state.items.push_back(copy_of(slot.name, slot.tensor()));
  }
  for (Exposed& buffer : buffers(model)) state.items.push_back(std::move(buffer));
  return state;
}

StateDict Operations::full_state_dict(Model&, const FullStateDictOptions&) {
  throw Error("NotImplementedError", "this testee's state dicts have no options");
}

void Operations::broadcast_state_dict(Model&, const StateDict&) {
  throw Error("NotImplementedError", "this testee loads state dicts that every rank has");
}

void Operations::load_state_dict(Model& model, const StateDict& state) {
  c10::AutoGradMode no_grad(false);
  std::map<std::string, at::Tensor> targets;
  for (const Slot& slot : parameter_slots_with_ties(*model.module)) targets[slot.name] = slot.tensor();
  for (const auto& [name, tensor] : named_buffers(*model.module)) targets[name] = tensor;
  for (const Exposed& item : state.items) {
    const auto target = targets.find(item.name);
    if (target == targets.end())
      throw Error("RuntimeError", "Unexpected key(s) in state_dict: \"" + item.name + "\".");
    target->second.copy_(item.value);
  }
}

StateDict Operations::optimizer_state_dict(Model&, Optimizer& optimizer, const std::string&) {
  StateDict dict;
  for (const Optimizer::State& state : optimizer.state())
    dict.items.push_back(copy_of(state.parameter + "/" + state.name, state.value));
  dict.native = optimizer.saved();
  return dict;
}

void Operations::load_optimizer_state_dict(Model&, Optimizer& optimizer, const StateDict& state) {
  optimizer.load(state.native);
}

void Operations::save_checkpoint(const Checkpoint& checkpoint) {
  throw Error("NotImplementedError", "no checkpoint can be saved as " + checkpoint.format);
}

void Operations::load_checkpoint(const Checkpoint& checkpoint) {
  throw Error("NotImplementedError", "no checkpoint can be loaded from " + checkpoint.format);
}

void Operations::zero_parameters(Model& model) {
  c10::AutoGradMode no_grad(false);
  for (const Slot& slot : parameter_slots(*model.module)) slot.tensor().zero_();
}

void Operations::set_requires_grad(Model& model, const std::string& name, bool value) {
  exposed(model, name).set_requires_grad(value);
}

void Operations::set_buffer(Model& model, const std::string& name, at::ScalarType dtype) {
  const auto dot = name.rfind('.');
  Module& owner = model.module->child(dot == std::string::npos ? "" : name.substr(0, dot));
  const std::string key = dot == std::string::npos ? name : name.substr(dot + 1);
  owner.set_buffer(key, owner.buffer(key).to(dtype));
}

at::Tensor Operations::exposed(Model& model, const std::string& name) {
  return slot_of(model, name).tensor();
}

void Operations::replace(Model& model, const std::string& name, at::Tensor tensor) {
  const Slot slot = slot_of(model, name);
  slot.owner->set_parameter(slot.key, std::move(tensor));
}

}  // namespace fsdp_cts::sdk
