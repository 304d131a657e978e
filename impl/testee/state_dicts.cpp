#include "impl/testee/state_dicts.hpp"

#include <ATen/ATen.h>

namespace fsdp_cts::testee {

sdk::Placement placement_of(const fsdp::ShardLayout& layout) {
  sdk::Placement placement{layout.global_shape, true, {}, 0};
  for (const fsdp::ShardPiece& piece : layout.pieces())
    placement.extents.push_back({piece.offset, piece.length});
  return placement;
}

sdk::StateDict state_of(const fsdp::StateDict& full) {
  sdk::StateDict result;
  for (const auto& [name, value] : full)
    result.items.push_back({name, value, sdk::whole(value.sizes().vec())});
  return result;
}

sdk::StateDict state_of(fsdp::ShardedStateDict sharded) {
  sdk::StateDict result;
  for (auto& [name, value] : sharded) {
    result.items.push_back(
        {name, value.local,
         value.group ? placement_of(value.layout) : sdk::whole(value.local.sizes().vec())});
  }
  result.native = std::move(sharded);
  return result;
}

sdk::StateDict optimizer_state_of(fsdp::FullOptimizerState full) {
  sdk::StateDict result;
  for (const auto& [name, values] : full) {
    for (const auto& [key, value] : values) {
      if (key != "step") result.items.push_back({name + "/" + key, value, sdk::whole(value.sizes().vec())});
    }
  }
  result.native = std::move(full);
  return result;
}

sdk::StateDict optimizer_state_of(fsdp::ShardedOptimizerState sharded) {
  sdk::StateDict result;
  for (auto& [name, values] : sharded) {
    for (auto& [key, value] : values) {
      if (key == "step") continue;
      result.items.push_back(
          {name + "/" + key, value.local,
           value.group ? placement_of(value.layout) : sdk::whole(value.local.sizes().vec())});
    }
  }
  result.native = std::move(sharded);
  return result;
}

fsdp::StateDict full_of(const sdk::StateDict& state) {
  fsdp::StateDict full;
  for (const sdk::Exposed& item : state.items) full.emplace_back(item.name, item.value);
  return full;
}

}  // namespace fsdp_cts::testee
