#include "flat/parameter_slots.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace fsdp::flat {
namespace {

/// The base class keeps its dictionary from everybody but subclasses.
struct Registration : torch::nn::Module {
  static torch::OrderedDict<std::string, at::Tensor>& of(torch::nn::Module& module) {
    return module.*&Registration::parameters_;
  }
};

}  // namespace

const torch::OrderedDict<std::string, at::Tensor>& own_parameters(const torch::nn::Module& module) {
  return Registration::of(const_cast<torch::nn::Module&>(module));
}

at::Tensor* ParameterSlot::find() const {
  const auto owner = module.lock();
  return owner ? Registration::of(*owner).find(name) : nullptr;
}

void ParameterSlot::put(const at::Tensor& parameter) const {
  const auto owner = module.lock();
  if (!owner) return;
  auto& parameters = Registration::of(*owner);
  if (parameters.contains(name)) return;  // a rank that keeps nothing in a summon scope takes nothing out
  std::vector<std::pair<std::string, at::Tensor>> in_order;
  for (const auto& entry : parameters) in_order.emplace_back(entry.key(), entry.value());
  in_order.insert(in_order.begin() + static_cast<std::ptrdiff_t>(std::min(position, in_order.size())),
                  {name, parameter});
  parameters.clear();
  for (auto& [key, tensor] : in_order) parameters.insert(key, std::move(tensor));
}

void ParameterSlot::take_out() const {
  const auto owner = module.lock();
  if (owner && Registration::of(*owner).contains(name)) Registration::of(*owner).erase(name);
}

}  // namespace fsdp::flat
