#include "reference/flat_settings.hpp"

#include <cstdlib>

#include "harness/sdk/cpp/tensors.hpp"

namespace fsdp_cts::reference {
namespace {

bool switched_on(const char* name) {
  const char* value = std::getenv(name);
  return value && std::string(value) == "1";
}

FlatMixedPrecision mixed_precision(const Json& policy, bool widen) {
  if (!policy.is_object()) return {};
  const auto dtype = [&](const char* key) -> std::optional<at::ScalarType> {
    if (!policy.contains(key) || policy.at(key).is_null()) return std::nullopt;
    return widen ? at::kDouble : sdk::dtype_from_name(policy.at(key).get<std::string>());
  };
  return {dtype("param_dtype"),
          dtype("reduce_dtype"),
          dtype("buffer_dtype"),
          policy.value("keep_low_precision_grads", false),
          policy.value("cast_forward_inputs", false),
          policy.value("cast_root_forward_inputs", true)};
}

FlatGroup group_of(const Json& unit, const Json& plan, const RankPlace& place) {
  const Json group = unit.value("process_group", Json("world"));
  if (group.is_object()) return {0, group.at("dummy").get<int>(), 1, false};
  if (group == "self") return {0, 1, 1, true};
  const std::string strategy = unit.value("sharding_strategy", "FULL_SHARD");
  const bool hybrid = strategy == "HYBRID_SHARD" || strategy == "_HYBRID_SHARD_ZERO2";
  if (!hybrid) return {place.rank, place.world, 1, true};
  const int replicas = plan.at("mesh").at(0).get<int>(), shards = plan.at("mesh").at(1).get<int>();
  return {place.rank % shards, shards, replicas, true};
}

Json shown_dtype(const Json& policy, const char* key) {
  return policy.is_object() ? policy.value(key, Json()) : Json();
}

}  // namespace

FlatSettings flat_settings(const Json& unit, const Json& plan, const RankPlace& place) {
  FlatSettings s;
  const Json policy = unit.value("mixed_precision", Json());
  s.composable = plan.at("api") == "composable";
  s.group = group_of(unit, plan, place);
  s.sharding_strategy =
      s.group.size == 1 && s.group.replicas == 1 ? "NO_SHARD" : unit.value("sharding_strategy", "FULL_SHARD");
  s.use_orig_params = s.composable || unit.value("use_orig_params", false);
  s.mixed_precision = mixed_precision(policy, place.widen);
  s.full_precision_in_eval = switched_on("FSDP_USE_FULL_PREC_IN_EVAL");
  s.sync_module_states = unit.value("sync_module_states", false);
  s.skip_writeback_check = switched_on("FSDP_SKIP_WRITEBACK_CHECK");
  s.shown = {{"sharding_strategy", s.sharding_strategy},
             {"use_orig_params", s.use_orig_params},
             {"backward_prefetch",
              s.composable ? Json("BACKWARD_PRE") : unit.value("backward_prefetch", Json("BACKWARD_PRE"))},
             {"forward_prefetch", unit.value("forward_prefetch", false)},
             {"limit_all_gathers", s.composable || unit.value("limit_all_gathers", true)},
             {"cpu_offload", unit.value("cpu_offload", false)},
             {"rank", s.group.rank},
             {"world_size", s.group.size},
             {"mixed_precision",
              {{"param_dtype", shown_dtype(policy, "param_dtype")},
               {"reduce_dtype", shown_dtype(policy, "reduce_dtype")},
               {"buffer_dtype", shown_dtype(policy, "buffer_dtype")},
               {"keep_low_precision_grads", s.mixed_precision.keep_low_precision_grads},
               {"cast_forward_inputs", s.mixed_precision.cast_forward_inputs},
               {"cast_root_forward_inputs", s.mixed_precision.cast_root_forward_inputs}}}};
  return s;
}

}  // namespace fsdp_cts::reference
