#include "impl/testee/state_dicts.hpp"

#include <ATen/ATen.h>

#include <algorithm>

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

sdk::StateDict state_of(const fsdp::ShardedStateDict& sharded) {
  sdk::StateDict result;
  for (const auto& [name, value] : sharded) {
    result.items.push_back(
        {name, value.local.detach().clone(),
         value.group ? placement_of(value.layout) : sdk::whole(value.local.sizes().vec())});
  }
  return result;
}

sdk::StateDict optimizer_state_of(fsdp::FullOptimizerState full) {
  sdk::StateDict result;
  for (auto& [name, values] : full) {
    for (auto& [key, value] : values) {
      value = value.clone();
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
      value.local = value.local.clone();
      if (key == "step") continue;
      result.items.push_back(
          {name + "/" + key, value.local,
           value.group ? placement_of(value.layout) : sdk::whole(value.local.sizes().vec())});
    }
  }
  result.native = std::move(sharded);
  return result;
}

bool is_sharded(const sdk::StateDict& state) {
  return std::any_of(state.items.begin(), state.items.end(),
                     [](const sdk::Exposed& item) { return item.placement.sharded; });
}

fsdp::StateDict full_of(const sdk::StateDict& state) {
  fsdp::StateDict full;
  for (const sdk::Exposed& item : state.items) full.emplace_back(item.name, item.value);
  return full;
}

fsdp::ShardedStateDict sharded_of(const sdk::StateDict& state, const fsdp::ShardedStateDict& places) {
  fsdp::ShardedStateDict shards;
  for (const sdk::Exposed& item : state.items) {
    fsdp::ShardedTensor shard{item.value, {}, nullptr};
    for (const auto& [name, place] : places) {
      if (name == item.name) shard = {item.value, place.layout, place.group};
    }
    shards.emplace_back(item.name, std::move(shard));
  }
  return shards;
}

}  // namespace fsdp_cts::testee
