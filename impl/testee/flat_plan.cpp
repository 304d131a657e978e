#include "impl/testee/flat_plan.hpp"

#include <stdexcept>

#include "fsdp/comm/dummy_group.hpp"
#include "fsdp/wrap/enable_wrap.hpp"
#include "fsdp/wrap/module_tree.hpp"
#include "impl/testee/plan.hpp"

namespace fsdp_cts::testee {
namespace {

namespace flat = fsdp::flat;

flat::ShardingStrategy strategy_named(const sdk::Json& name) {
  for (const auto strategy : {flat::ShardingStrategy::full_shard, flat::ShardingStrategy::shard_grad_op,
                              flat::ShardingStrategy::no_shard, flat::ShardingStrategy::hybrid_shard,
                              flat::ShardingStrategy::hybrid_shard_zero2}) {
    if (name == flat::python_name(strategy)) return strategy;
  }
  throw std::invalid_argument("no sharding strategy is called " + name.dump());
}

flat::BackwardPrefetch prefetch_named(const sdk::Json& name) {
  if (name == "BACKWARD_PRE") return flat::BackwardPrefetch::backward_pre;
  if (name == "BACKWARD_POST") return flat::BackwardPrefetch::backward_post;
  return flat::BackwardPrefetch::none;
}

sdk::Json name_of(flat::BackwardPrefetch prefetch) {
  if (prefetch == flat::BackwardPrefetch::none) return nullptr;
  return prefetch == flat::BackwardPrefetch::backward_pre ? "BACKWARD_PRE" : "BACKWARD_POST";
}

std::vector<fsdp::ModuleClass> classes_of(const sdk::Json& names) {
  std::vector<fsdp::ModuleClass> classes;
  for (const sdk::Json& name : names) classes.push_back(fsdp::class_named(name));
  return classes;
}

std::optional<flat::MixedPrecision> mixed_precision_of(const sdk::Json& policy) {
  if (!policy.is_object()) return std::nullopt;
  std::function<bool(const torch::nn::Module&)> ignored;
  if (policy.contains("module_classes_to_ignore")) {
    ignored = [classes = classes_of(policy.at("module_classes_to_ignore"))](const torch::nn::Module& module) {
      return fsdp::matches_any(classes, module);
    };
  }
  return flat::MixedPrecision{dtype_of(policy, "param_dtype"),
                              dtype_of(policy, "reduce_dtype"),
                              dtype_of(policy, "buffer_dtype"),
                              policy.value("keep_low_precision_grads", false),
                              policy.value("cast_forward_inputs", false),
                              policy.value("cast_root_forward_inputs", true),
                              std::move(ignored)};
}

flat::ComposableOptions composable(const flat::FSDPOptions& options) {
  flat::ComposableOptions result;
  result.process_group = options.process_group;
  if (options.device_mesh) {
    result.process_group = options.device_mesh->group(1);
    result.replicate_group = options.device_mesh->group(0);
  }
  result.policy = options.auto_wrap_policy;
  result.strategy = options.sharding_strategy;
  result.mixed_precision = options.mixed_precision;
  result.cpu_offload = options.cpu_offload;
  result.ignored_modules = options.ignored_modules;
  result.ignored_state_modules = options.ignored_state_modules;
  result.ignored_parameters = options.ignored_parameters;
  result.device_id = options.device_id;
  result.forward_prefetch = options.forward_prefetch;
  result.sync_module_states = options.sync_module_states;
  result.param_init_fn = options.param_init_fn;
  return result;
}

// Of the module's own parameters and buffers.
void set_initial_values(sdk::Module& module, const std::string& instance, const sdk::Data& data) {
  const auto value = [&](const char* kind, const std::string& name) {
    return data.get(std::string(kind) + "/" + instance + "/" + fsdp::qualified(module.path(), name));
  };
  for (const std::string& name : module.parameter_names())
    at::Tensor(module.parameter(name)).copy_(value("parameters", name));
  for (const std::string& name : module.buffer_names())
    at::Tensor(module.buffer(name)).copy_(value("buffers", name));
}

bool given(const sdk::Json& keys, const char* key) {
  return keys.contains(key) && !keys.at(key).is_null();
}

}  // namespace

// Units that follow one another with the same context stand in one, as a user would write them.
void FlatPlan::apply() const {
  std::optional<flat::EnableWrap> enabled;
  sdk::Json within;
  for (const sdk::Json& unit : model_.plan.at("units")) {
    const sdk::Json context = unit.value("enable_wrap", sdk::Json());
    if (context != within) {
      enabled.reset();
      if (context.is_object()) {
        Options options;
        options.process_group = world_;
        set(context, options);
        enabled.emplace(options);
      }
      within = context;
    }
    apply(unit);
  }
}

void FlatPlan::apply(const sdk::Json& unit) const {
  const auto module = module_at(model_, unit.at("modules").at(0));
  Options options;
  options.process_group = world_;
  const auto change = [&](Options& of) {
    set(unit, of);
    settle(of);
  };
  if (given(unit, "enable_wrap")) {
    std::optional<flat::EnableWrap> outer, inner;
    if (unit["enable_wrap"] == "nested") {
      outer.emplace(options);
      inner.emplace(options);
    }
    return flat::wrap_module(module, change);
  }
  change(options);
  if (model_.plan.at("api") == "composable") {
    flat::fully_shard(module, composable(options));
  } else {
    flat::FullyShardedDataParallel(module, options);
  }
}

void FlatPlan::set(const sdk::Json& keys, Options& options) const {
  if (keys.contains("process_group")) options.process_group = group_of(keys.at("process_group"));
  if (given(keys, "sharding_strategy"))
    options.sharding_strategy = strategy_named(keys.at("sharding_strategy"));
  if (keys.contains("backward_prefetch"))
    options.backward_prefetch = prefetch_named(keys.at("backward_prefetch"));
  if (keys.contains("mixed_precision"))
    options.mixed_precision = mixed_precision_of(keys.at("mixed_precision"));
  if (keys.contains("auto_wrap")) options.auto_wrap_policy = policy_of(keys.at("auto_wrap"));
  options.use_orig_params = keys.value("use_orig_params", options.use_orig_params);
  options.forward_prefetch = keys.value("forward_prefetch", options.forward_prefetch);
  options.limit_all_gathers = keys.value("limit_all_gathers", options.limit_all_gathers);
  options.cpu_offload = keys.value("cpu_offload", options.cpu_offload);
  options.sync_module_states = keys.value("sync_module_states", options.sync_module_states);
  if (given(keys, "device_id")) options.device_id = world_->device();  // a process has one
  if (given(keys, "param_init")) {
    options.param_init_fn = [data = data_, instance = model_.instance](torch::nn::Module& module) {
      set_initial_values(dynamic_cast<sdk::Module&>(module), instance, data);
    };
  }
  if (const sdk::Json paths = keys.value("ignored_modules", sdk::Json::array()); !paths.empty())
    options.ignored_modules = modules_at(model_, paths);
  if (const sdk::Json paths = keys.value("ignored_state_modules", sdk::Json::array()); !paths.empty())
    options.ignored_state_modules = modules_at(model_, paths);
  for (const sdk::Json& name : keys.value("ignored_parameters", sdk::Json::array()))
    options.ignored_parameters.push_back(parameter_named(*model_.module, name));
}

void FlatPlan::settle(Options& options) const {
  if (!flat::is_hybrid(options.sharding_strategy)) return;
  options.process_group = nullptr;
  options.device_mesh = mesh_of(model_.plan, world_);
}

std::shared_ptr<fsdp::Communicator> FlatPlan::group_of(const sdk::Json& process_group) const {
  if (process_group.is_object()) return fsdp::make_dummy_group(0, process_group.at("dummy"));
  return process_group == "self"
             ? world_->subgroup({world_->ranks().at(static_cast<std::size_t>(world_->rank()))})
             : world_;
}

std::shared_ptr<const flat::WrapPolicy> FlatPlan::policy_of(const sdk::Json& auto_wrap) const {
  if (!auto_wrap.is_object()) return nullptr;
  const std::string policy = auto_wrap.at("policy");
  if (policy == "module_wrap")
    return std::make_shared<flat::ModuleWrapPolicy>(classes_of(auto_wrap.at("classes")));
  if (policy == "custom")
    return std::make_shared<flat::CustomPolicy>(custom_policy_of(auto_wrap.at("rules")));
  return std::make_shared<flat::FunctionPolicy>(function_of(auto_wrap));
}

fsdp::WrapFunction FlatPlan::function_of(const sdk::Json& auto_wrap) const {
  const std::string policy = auto_wrap.at("policy");
  if (policy == "always") return fsdp::always_wrap_policy();
  if (policy == "never") return fsdp::never_wrap_policy();
  if (policy == "transformer") return fsdp::transformer_auto_wrap_policy(classes_of(auto_wrap.at("classes")));
  if (policy == "module_wrap") return flat::ModuleWrapPolicy(classes_of(auto_wrap.at("classes")));
  if (policy == "lambda") {
    return fsdp::lambda_auto_wrap_policy(
        [classes = classes_of(auto_wrap.at("classes"))](const torch::nn::Module& module) {
          return std::ranges::any_of(classes, [&](const auto& each) { return each.matches(module); });
        });
  }
  if (policy == "batch_norm") return fsdp::wrap_module_classes_individually(fsdp::batch_norm_classes());
  if (policy == "size_based") {
    fsdp::SizeBasedOptions options;
    options.min_num_params = auto_wrap.value("min_num_params", options.min_num_params);
    if (given(auto_wrap, "force_leaf")) options.force_leaf_modules = classes_of(auto_wrap.at("force_leaf"));
    if (given(auto_wrap, "exclude_wrap"))
      options.exclude_wrap_modules = classes_of(auto_wrap.at("exclude_wrap"));
    return fsdp::size_based_auto_wrap_policy(options);
  }
  if (policy == "or") {
    std::vector<fsdp::WrapFunction> functions;
    for (const sdk::Json& one : auto_wrap.at("policies")) functions.push_back(function_of(one));
    return fsdp::or_policy(functions);
  }
  throw std::invalid_argument("no wrap function is called \"" + policy + "\"");
}

// The first rule for a module's class decides; a module that no rule names is not wrapped. The policy is used
// while the plan is applied, not longer.
flat::CustomPolicy FlatPlan::custom_policy_of(const sdk::Json& rules) const {
  return flat::CustomPolicy([this, rules](const torch::nn::Module& module) -> flat::CustomPolicy::Answer {
    for (const sdk::Json& rule : rules) {
      if (!fsdp::class_named(rule.at("class")).matches(module)) continue;
      const sdk::Json& wrap = rule.at("wrap");
      if (wrap.is_boolean()) return wrap.get<bool>();
      // No C++ function could answer that; Python's can, and is refused.
      if (wrap.is_number()) {
        throw sdk::Error(
            "ValueError",
            "The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it "
            "returned " +
                wrap.dump());
      }
      if (wrap.empty()) return false;
      return flat::OptionsOverride([this, wrap](Options& options) { set(wrap, options); });
    }
    return false;
  });
}

sdk::Json settings_of(const flat::FullyShardedDataParallel& unit) {
  const flat::MixedPrecision& policy = unit.mixed_precision();
  return {{"sharding_strategy", flat::python_name(unit.sharding_strategy())},
          {"use_orig_params", unit.use_orig_params()},
          {"backward_prefetch", name_of(unit.backward_prefetch())},
          {"forward_prefetch", unit.forward_prefetch()},
          {"limit_all_gathers", unit.limit_all_gathers()},
          {"cpu_offload", unit.cpu_offload()},
          {"rank", unit.rank()},
          {"world_size", unit.world_size()},
          {"mixed_precision",
           {{"param_dtype", name_or_null(policy.param_dtype)},
            {"reduce_dtype", name_or_null(policy.reduce_dtype)},
            {"buffer_dtype", name_or_null(policy.buffer_dtype)},
            {"keep_low_precision_grads", policy.keep_low_precision_grads},
            {"cast_forward_inputs", policy.cast_forward_inputs},
            {"cast_root_forward_inputs", policy.cast_root_forward_inputs}}}};
}

}  // namespace fsdp_cts::testee
