#include "base/unit_registry.hpp"

#include <c10/util/StringUtil.h>

#include "fsdp/errors.hpp"

namespace fsdp {

const char* name_of(Engine engine) {
  return engine == Engine::flat ? "FullyShardedDataParallel" : "fully_shard";
}

UnitRegistry& UnitRegistry::instance() {
  static auto* registry = new UnitRegistry;
  return *registry;
}

void UnitRegistry::add(Engine engine, const std::shared_ptr<torch::nn::Module>& module,
                       std::weak_ptr<void> state) {
  const std::lock_guard lock(mutex_);
  modules_[module.get()] = {engine, module, std::move(state)};
}

void UnitRegistry::add(Engine engine, const at::Tensor& parameter, std::weak_ptr<void> state, size_t index) {
  const std::lock_guard lock(mutex_);
  parameters_[parameter.unsafeGetTensorImpl()] = {engine, std::move(state), index};
}

bool UnitRegistry::drop_expired() {
  const std::lock_guard lock(mutex_);
  std::erase_if(modules_, [](const auto& entry) { return entry.second.state.expired(); });
  std::erase_if(parameters_, [](const auto& entry) { return entry.second.state.expired(); });
  return modules_.empty();
}

std::shared_ptr<void> UnitRegistry::state_of(Engine engine, const torch::nn::Module& module) const {
  const std::lock_guard lock(mutex_);
  const auto entry = modules_.find(&module);
  if (entry == modules_.end() || entry->second.engine != engine || entry->second.module.expired())
    return nullptr;
  return entry->second.state.lock();
}

std::pair<std::shared_ptr<void>, size_t> UnitRegistry::owner_of(Engine engine,
                                                                const at::Tensor& parameter) const {
  const std::lock_guard lock(mutex_);
  const auto entry = parameters_.find(parameter.unsafeGetTensorImpl());
  if (entry == parameters_.end() || entry->second.engine != engine) return {nullptr, 0};
  return {entry->second.state.lock(), entry->second.index};
}

void UnitRegistry::refuse_other_engine(Engine engine, const torch::nn::Module& root) const {
  const auto other = engine == Engine::flat ? Engine::per_parameter : Engine::flat;
  for (const auto& entry : root.named_modules("", /*include_self=*/true)) {
    if (!state_of(other, *entry.value())) continue;
    throw InvalidArgument(c10::str(name_of(engine), " cannot be applied over ", name_of(other), ": ",
                                   entry.key().empty() ? "the module itself" : "'" + entry.key() + "'",
                                   " is sharded by it already. Use one of the two for the whole model.\n",
                                   root));
  }
}

}  // namespace fsdp
