// Settings of one FSDP1 unit, with the defaults of its constructor.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fsdp_cts::reference {

using Json = nlohmann::ordered_json;

struct FlatMixedPrecision {
  std::optional<at::ScalarType> param_dtype, reduce_dtype, buffer_dtype;
  bool keep_low_precision_grads = false;
  bool cast_forward_inputs = false;
  bool cast_root_forward_inputs = true;
};

// Where a rank stands among those that share a unit. A `self` or `dummy` group is of one rank's own making.
struct FlatGroup {
  int rank = 0, size = 1;
  int replicas = 1;          // hybrid strategies: groups that average among each other
  bool communicates = true;  // a dummy group does not
};

struct FlatSettings {
  std::string sharding_strategy;  // after the clamp to NO_SHARD that a group of one brings
  bool use_orig_params = false;
  FlatMixedPrecision mixed_precision;
  FlatGroup group;
  bool composable = false;
  // Environment at construction.
  bool full_precision_in_eval = false, skip_writeback_check = false;
  bool sync_module_states = false;
  Json shown;  // what `units` observes

  bool shards() const { return sharding_strategy != "NO_SHARD"; }
  // Parameters stay unsharded between forward and backward.
  bool keeps_unsharded() const {
    return sharding_strategy == "SHARD_GRAD_OP" || sharding_strategy == "_HYBRID_SHARD_ZERO2";
  }
};

struct RankPlace {
  int rank = 0, world = 1;
  bool widen = false;  // every named dtype is float64
};

// `unit` as in LANGUAGE.md §5, `plan` for api and mesh.
FlatSettings flat_settings(const Json& unit, const Json& plan, const RankPlace& place);

}  // namespace fsdp_cts::reference
