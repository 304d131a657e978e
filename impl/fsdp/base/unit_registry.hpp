#pragma once
// Which modules are units, of which engine, and which unit a parameter belongs to. One registry for both
// engines, so that each sees where the other has been.
//
// Look-ups go by address. An address counts only as long as the object that was registered lives: a module
// that is made where a dead one lay is nobody's unit, even if a handle still keeps the dead one's state.
// Thread-safe.
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace fsdp {

enum class Engine { per_parameter, flat };
const char* name_of(Engine engine);  ///< "fully_shard", "FullyShardedDataParallel"

class UnitRegistry {
 public:
  /// Never destroyed: sharded modules may be static objects, which outlive everything else.
  static UnitRegistry& instance();

  void add(Engine engine, const std::shared_ptr<torch::nn::Module>& module, std::weak_ptr<void> state);
  /// `index`: the parameter's place in its unit. The unit keeps the parameter alive.
  void add(Engine engine, const at::Tensor& parameter, std::weak_ptr<void> state, size_t index);
  /// Forgets modules and parameters whose state is gone. Returns whether no unit is left.
  bool drop_expired();

  /// The state of this module's unit; null for a module that is no unit of this engine.
  std::shared_ptr<void> state_of(Engine engine, const torch::nn::Module& module) const;
  /// The state of the unit that holds this parameter, and its place there; null if none of this engine does.
  std::pair<std::shared_ptr<void>, size_t> owner_of(Engine engine, const at::Tensor& parameter) const;

  /// Throws InvalidArgument if `root` or a module below it is a unit of another engine than this one: neither
  /// can shard what the other has sharded.
  void refuse_other_engine(Engine engine, const torch::nn::Module& root) const;

 private:
  struct ModuleEntry {
    Engine engine;
    std::weak_ptr<torch::nn::Module> module;
    std::weak_ptr<void> state;
  };
  struct ParameterEntry {
    Engine engine;
    std::weak_ptr<void> state;
    size_t index;
  };
  mutable std::mutex mutex_;
  std::map<const torch::nn::Module*, ModuleEntry> modules_;
  std::map<const c10::TensorImpl*, ParameterEntry> parameters_;
};

}  // namespace fsdp
