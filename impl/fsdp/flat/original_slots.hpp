#pragma once
// The places of the unsharded model's parameters, in its order, whatever is registered there now.
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "flat/unit.hpp"

namespace fsdp::flat {

struct OriginalSlot {
  std::string name;                       ///< from the module that was asked
  std::shared_ptr<FlatState> state = {};  ///< null: no unit holds it
  size_t member = 0;                      ///< its index there
  const ParameterSlot* place = nullptr;   ///< of the member
  at::Tensor unmanaged = {};              ///< where no unit holds it

  const FlatShard::Member& info() const { return state->flat()->shard().members()[member]; }
};

/// Registration order, own before children. Tied parameters once, at their first place, or at every place.
enum class Ties { once, every_place };
std::vector<OriginalSlot> original_slots(const torch::nn::Module& root, Ties ties);

}  // namespace fsdp::flat
