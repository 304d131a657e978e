// From a plan's unit (LANGUAGE.md §5, api `fully_shard`) to the library's options, and back for observations.
#pragma once

#include "fsdp/fully_shard.hpp"
#include "harness/sdk/cpp/operations.hpp"

namespace fsdp_cts::testee {

// Absent keys keep the library's defaults. Throws std::invalid_argument for a parameter name that the model
// lacks.
fsdp::FullyShardOptions options_of(const sdk::Json& unit, sdk::Module& root);
// Both throw sdk::Error for a value of another type, in PyTorch's words.
fsdp::ReshardAfterForward reshard_after_forward_of(const sdk::Json& value);
bool bool_reshard_after_forward_of(const sdk::Json& value);
sdk::Json settings_of(const fsdp::FSDPModule& unit);

// What plans of all APIs share. An absent or null key of a policy is no dtype.
std::optional<at::ScalarType> dtype_of(const sdk::Json& policy, const char* key);
sdk::Json name_or_null(const std::optional<at::ScalarType>& dtype);
at::Tensor parameter_named(sdk::Module& root, const std::string& name);
// One dimension over the world, or the plan's [replicate, shard].
fsdp::DeviceMesh mesh_of(const sdk::Json& plan, const std::shared_ptr<fsdp::Communicator>& world);

}  // namespace fsdp_cts::testee
