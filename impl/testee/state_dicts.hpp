// State dicts of the library as the suite hands them around, and back.
#pragma once

#include "fsdp/optim_state.hpp"
#include "fsdp/state_dict.hpp"
#include "harness/sdk/cpp/operations.hpp"

namespace fsdp_cts::testee {

sdk::Placement placement_of(const fsdp::ShardLayout& layout);

sdk::StateDict state_of(const fsdp::StateDict& full);
sdk::StateDict state_of(const fsdp::ShardedStateDict& sharded);

// Copies. Items are what has the parameters' shapes; the library's own form is `native`.
sdk::StateDict optimizer_state_of(fsdp::FullOptimizerState full);
sdk::StateDict optimizer_state_of(fsdp::ShardedOptimizerState sharded);

bool is_sharded(const sdk::StateDict& state);
fsdp::StateDict full_of(const sdk::StateDict& state);
// Places are the model's present ones, names and values the saved ones: the library itself finds what is
// missing or unknown.
fsdp::ShardedStateDict sharded_of(const sdk::StateDict& state, const fsdp::ShardedStateDict& places);

}  // namespace fsdp_cts::testee
