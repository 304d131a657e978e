// State dicts of the library as the suite hands them around, and back.
#pragma once

#include "fsdp/optim_state.hpp"
#include "fsdp/state_dict.hpp"
#include "harness/sdk/cpp/operations.hpp"

namespace fsdp_cts::testee {

sdk::Placement placement_of(const fsdp::ShardLayout& layout);

sdk::StateDict state_of(const fsdp::StateDict& full);
// Copies; the library's own form is `native`. Of an optimizer's, items are what has the parameters' shapes.
sdk::StateDict state_of(fsdp::ShardedStateDict sharded);
sdk::StateDict optimizer_state_of(fsdp::FullOptimizerState full);
sdk::StateDict optimizer_state_of(fsdp::ShardedOptimizerState sharded);

fsdp::StateDict full_of(const sdk::StateDict& state);

}  // namespace fsdp_cts::testee
