#include "reference/unit.hpp"

#include <ATen/ATen.h>

namespace fsdp_cts::reference {

Unit::Unit(std::vector<std::pair<std::string, sdk::Module*>> modules, std::vector<UnitParameter> parameters)
    : modules_(std::move(modules)), parameters_(std::move(parameters)) {}

bool Unit::is_inside(const std::string& ancestor) const {
  return ancestor.empty() || path() == ancestor || path().starts_with(ancestor + ".");
}

// A group of several modules is one unit: gathered before the first that runs, freed after the last.
void Unit::install() {
  for (const auto& [path, module] : modules_) {
    module->add_pre_forward_hook([this](sdk::Tensors inputs) {
      if (!hidden_.empty()) return before_forward(std::move(inputs));  // recomputed in backward
      if (!to_run_.empty()) return inputs;
      for (const auto& each : modules_) to_run_.insert(each.second);
      inputs = before_forward(std::move(inputs));
      unshard();
      return inputs;
    });
    module->add_post_forward_hook([this, module = module](sdk::Tensors outputs) {
      if (!hidden_.empty()) return outputs;
      watch(outputs);
      to_run_.erase(module);
      if (!to_run_.empty()) return outputs;
      reshard();
      return after_forward(std::move(outputs));
    });
  }
}

void Unit::unshard() {
  for (UnitParameter& p : parameters_) {
    p.master = p.slots.front().tensor();  // user code may have put another one there
    const at::ScalarType dtype = compute_dtype(p);
    if (!p.compute.defined() || p.compute.scalar_type() != dtype || p.compute.device() != p.master.device())
      p.compute = at::empty({0}, p.master.options().dtype(dtype));
    // Saved tensors of an earlier forward see the new values too, as after a second gather.
    p.compute.set_data(p.master.detach().to(dtype));
    p.compute.set_requires_grad(catches_gradient(p));
    for (const sdk::Slot& slot : p.slots) slot.owner->set_parameter(slot.key, p.compute);
  }
}

void Unit::reshard() {
  for (UnitParameter& p : parameters_) {
    for (const sdk::Slot& slot : p.slots) slot.owner->set_parameter(slot.key, p.master);
  }
}

void Unit::show_compute() {
  for (UnitParameter& p : parameters_) {
    if (!p.compute.defined()) continue;
    for (const sdk::Slot& slot : p.slots) {
      hidden_.emplace_back(slot, slot.tensor());
      slot.owner->set_parameter(slot.key, p.compute);
    }
  }
}

void Unit::show_masters() {
  for (const auto& [slot, tensor] : hidden_) slot.owner->set_parameter(slot.key, tensor);
  hidden_.clear();
}

void Unit::end_backward() {
  if (to_run_.empty()) return;
  to_run_.clear();
  reshard();
}

void Unit::abandon_backward() {
  end_backward();
  for (UnitParameter& p : parameters_)
    if (p.compute.defined()) p.compute.mutable_grad().reset();
}

void Unit::abandon_forward() {
  to_run_.clear();
  for (UnitParameter& p : parameters_) {
    for (const sdk::Slot& slot : p.slots) {
      if (slot.tensor().is_same(p.compute)) slot.owner->set_parameter(slot.key, p.master);
    }
  }
}

sdk::Tensors cast_floating(sdk::Tensors tensors, std::optional<at::ScalarType> dtype) {
  if (!dtype) return tensors;
  for (at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(*dtype);
  }
  return tensors;
}

void accumulate_gradient(at::Tensor& master, const at::Tensor& gradient) {
  at::Tensor& sum = master.mutable_grad();
  if (sum.defined()) {
    sum.add_(gradient);
  } else {
    sum = gradient.clone();
  }
}

}  // namespace fsdp_cts::reference
