#include "reference/rank.hpp"

#include "reference/fully_shard.hpp"

namespace fsdp_cts::reference {

sdk::Identity Rank::identity() const {
  return {"fsdp-cts reference", "1", {"fully_shard", "fsdp", "composable"}, "none", "cpu", "unspecified", {}};
}

void Rank::shard(sdk::Model& model) {
  const bool widen = context().data.widened();
  ShardedModel sharded{model.module, {}, {}};
  const std::string api = model.plan.at("api");
  if (api == "fully_shard") {
    sharded.units = fully_shard_units(*model.module, model.plan, widen);
  } else {
    throw std::invalid_argument("the reference has no api \"" + api + "\"");
  }
  for (const auto& unit : sharded.units) unit->install();
  sharded_[model.instance] = std::move(sharded);
}

sdk::Tensors Rank::forward(sdk::Model& model, sdk::Tensors inputs) {
  try {
    return Operations::forward(model, std::move(inputs));
  } catch (...) {
    const auto sharded = sharded_.find(model.instance);
    if (sharded != sharded_.end()) {
      for (const auto& unit : sharded->second.units) unit->abandon_forward();
    }
    throw;
  }
}

void Rank::backward(const at::Tensor& loss) {
  for (auto& [instance, sharded] : sharded_) {
    for (const auto& unit : sharded.units) unit->before_backward();
  }
  loss.backward();
}

// What has no effect on values has none here: gathering, freeing and prefetching.
void Rank::control(sdk::Model& model, const sdk::Json& verb) {
  const std::string name = verb.at("verb"), module = verb.value("module", "");
  for (const auto& unit : sharded_.at(model.instance).units) {
    auto* sharded = dynamic_cast<FullyShardUnit*>(unit.get());
    if (!sharded) continue;
    if (name == "set_gradient_divide_factor" && sharded->path() == module) sharded->divide_factor = verb.at("value");
    if (!sharded->is_inside(module)) continue;
    if (name == "set_requires_gradient_sync") sharded->reduce_gradients = sharded->all_reduce_gradients = verb.at("value");
    if (name == "set_requires_all_reduce") sharded->all_reduce_gradients = verb.at("value");
  }
}

std::vector<sdk::Unit> Rank::units(sdk::Model& model) {
  const auto sharded = sharded_.find(model.instance);
  return sharded == sharded_.end() ? std::vector<sdk::Unit>{} : sharded->second.tree;
}

void Rank::set_buffer(sdk::Model& model, const std::string& name, at::ScalarType dtype) {
  const bool widen = context().data.widened() && at::isFloatingType(dtype);
  Operations::set_buffer(model, name, widen ? at::ScalarType::Double : dtype);
}

}  // namespace fsdp_cts::reference
