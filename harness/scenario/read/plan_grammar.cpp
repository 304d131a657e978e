#include "harness/scenario/read/plan_grammar.hpp"

#include <stdexcept>

namespace fsdp_cts {

const std::vector<std::string>& plan_apis() {
  static const std::vector<std::string> apis = {"fully_shard", "fsdp", "composable"};
  return apis;
}

const Fields& plan_fields() {
  static const Rule unit{.types = types::map, .schema_ref = "unit"};
  static const Fields table = {
      {"api", {.types = types::string, .words = plan_apis()}, true},
      {"mesh",
       {.types = types::list, .each = &rules::positive, .length = 2},
       false,
       {},
       "[replicate, shard], hybrid only"},
      {"mesh_from",
       {.types = types::string, .words = {"shape", "groups"}},
       false,
       {},
       "groups: the mesh is put together from groups that are there already"},
      {"replicas",
       {.types = types::string, .words = {"native", "by_hook"}},
       false,
       {},
       "by_hook: fully_shard gets the mesh's second dimension only"},
      {"units", {.types = types::list, .each = &unit}, true, {}, "calls of the API, in order"},
  };
  return table;
}

namespace {

const Fields& fully_shard_fields() {
  static const Fields mixed_precision = {{"param_dtype", rules::float_dtype_or_null},
                                         {"reduce_dtype", rules::float_dtype_or_null},
                                         {"output_dtype", rules::float_dtype_or_null},
                                         {"cast_forward_inputs", rules::boolean}};
  static const Fields table = {
      {"modules", rules::names, true, {}, "paths; \"\" is the root"},
      {"reshard_after_forward", {.types = types::null | types::boolean | types::integer}},
      {"mixed_precision", {.types = types::map | types::null, .fields = &mixed_precision}},
      {"cpu_offload", rules::boolean, false, {}, "CPUOffloadPolicy"},
      {"pin_memory", rules::boolean, false, {}, "of cpu_offload; true unless said otherwise"},
      {"ignored_parameters", rules::names},
      {"shard_dims",
       {.types = types::map, .each = &rules::integer},
       false,
       {},
       "parameter name to dimension; a negative one counts from the last"},
  };
  return table;
}

// The settings FSDP1 takes; `wrap` rules of a custom policy may carry them too.
Fields fsdp_settings() {
  static const Fields mixed_precision = {
      {"param_dtype", rules::float_dtype_or_null},  {"reduce_dtype", rules::float_dtype_or_null},
      {"buffer_dtype", rules::float_dtype_or_null}, {"keep_low_precision_grads", rules::boolean},
      {"cast_forward_inputs", rules::boolean},      {"cast_root_forward_inputs", rules::boolean},
      {"module_classes_to_ignore", rules::names}};
  static const Fields dummy_group = {
      {"dummy", rules::positive, true, {}, "size of a group that communicates nothing"}};
  return {
      {"sharding_strategy",
       {.types = types::string,
        .words = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"}}},
      {"use_orig_params", rules::boolean},
      {"mixed_precision", {.types = types::map | types::null, .fields = &mixed_precision}},
      {"backward_prefetch",
       {.types = types::string | types::null, .words = {"BACKWARD_PRE", "BACKWARD_POST"}}},
      {"forward_prefetch", rules::boolean},
      {"limit_all_gathers", rules::boolean},
      {"cpu_offload", rules::boolean},
      {"process_group",
       {.types = types::string | types::map, .words = {"world", "self"}, .fields = &dummy_group}},
      {"ignored_modules", rules::names},
      {"ignored_state_modules", rules::names, false, {}, "the same, given as ignored_states"},
      {"ignored_parameters", rules::names},
      {"device_id", {types::integer | types::string | types::null}},
      {"sync_module_states", rules::boolean},
      {"param_init",
       {.types = types::string, .words = {"data"}},
       false,
       {},
       "a function gives modules on the meta device their initial values"},
  };
}

Fields composable_fields() {
  Fields fields = {{"modules",
                    {.types = types::list, .each = &rules::name, .length = 1},
                    true,
                    {},
                    "one path; \"\" is the root"}};
  for (Field& field : fsdp_settings()) fields.push_back(std::move(field));
  fields.push_back({"auto_wrap", {.types = types::map, .fields = &auto_wrap_fields()}});
  return fields;
}

Fields fsdp_fields() {
  static const Fields defaults = [] {
    Fields fields = composable_fields();
    fields.erase(fields.begin());  // a context knows no module
    return fields;
  }();
  Fields fields = composable_fields();
  fields.push_back(
      {"enable_wrap",
       {.types = types::string | types::map, .words = {"outside", "nested"}, .fields = &defaults},
       false,
       {},
       "made by wrap(): inside a context with these defaults, outside of any, or inside one within another, "
       "which is refused"});
  return fields;
}

}  // namespace

const Fields& auto_wrap_fields() {
  static const Fields settings = fsdp_settings();
  static const Fields wrap_rule = {
      {"class", rules::name, true},
      {"wrap",
       {.types = types::boolean | types::map | types::number, .fields = &settings},
       true,
       {},
       "a number is an answer that a policy must not give"}};
  static const Rule one_rule{.types = types::map, .fields = &wrap_rule};
  static const Rule policy{.types = types::map, .schema_ref = "auto_wrap"};
  static const Fields table = {
      {"policy",
       {.types = types::string,
        .words = {"module_wrap", "transformer", "lambda", "size_based", "always", "never", "batch_norm",
                  "custom", "or"}},
       true},
      {"classes", rules::names},
      {"min_num_params", rules::natural},
      {"force_leaf", rules::names, false, {}, "of policy size_based: classes it does not look into"},
      {"exclude_wrap", rules::names, false, {}, "of policy size_based: classes it does not wrap"},
      {"rules", {.types = types::list, .each = &one_rule}, false, {}, "of policy custom"},
      {"policies", {.types = types::list, .each = &policy}, false, {}, "of policy or"},
  };
  return table;
}

const Fields& unit_fields(std::string_view api) {
  static const Fields fsdp = fsdp_fields(), composable = composable_fields();
  if (api == "fully_shard") return fully_shard_fields();
  if (api == "fsdp") return fsdp;
  if (api == "composable") return composable;
  throw std::out_of_range("no plan API is called '" + std::string(api) + "'");
}

const Fields& plan_and_unit_fields(std::string_view api) {
  const auto joined = [](const Fields& units) {
    Fields fields = plan_fields();
    for (const Field& field : units)
      if (field.name != "modules") fields.push_back(field);
    return fields;
  };
  static const Fields fully_shard = joined(unit_fields("fully_shard")), fsdp = joined(unit_fields("fsdp")),
                      composable = joined(unit_fields("composable"));
  return api == "fully_shard" ? fully_shard : api == "fsdp" ? fsdp : composable;
}

}  // namespace fsdp_cts
