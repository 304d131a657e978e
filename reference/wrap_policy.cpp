#include "reference/wrap_policy.hpp"

#include <algorithm>
#include <map>

#include "harness/sdk/cpp/errors.hpp"

namespace fsdp_cts::reference {
namespace {

// As isinstance: by nominal class, or by the type that the class is made of.
bool is_a(const sdk::Module& module, const std::string& label) {
  return module.class_name() == label || module.type() == label;
}

bool is_any(const sdk::Module& module, const Json& labels) {
  return std::any_of(labels.begin(), labels.end(), [&](const Json& label) { return is_a(module, label); });
}

bool is_batch_norm(const sdk::Module& module) {
  return module.type().starts_with("BatchNorm") || module.type() == "SyncBatchNorm";
}

// A policy as a function: asked with `recurse` whether to look below, without whether to wrap what is left of
// the module.
bool wants(const Json& policy, const sdk::Module& module, bool recurse, std::int64_t numel) {
  const std::string kind = policy.at("policy");
  if (kind == "always") return true;
  if (kind == "never") return false;
  if (kind == "module_wrap" || kind == "transformer" || kind == "lambda")
    return recurse || is_any(module, policy.at("classes"));
  if (kind == "batch_norm") return recurse || is_batch_norm(module);
  if (kind == "size_based") {
    if (numel < policy.value("min_num_params", std::int64_t{100'000'000})) return false;
    static const Json leaves{"MultiheadAttention"}, lists{"ModuleList", "ModuleDict"};
    return !is_any(module,
                   recurse ? policy.value("force_leaf", leaves) : policy.value("exclude_wrap", lists));
  }
  if (kind == "or") {
    const Json& policies = policy.at("policies");
    return std::any_of(policies.begin(), policies.end(),
                       [&](const Json& p) { return wants(p, module, recurse, numel); });
  }
  throw std::invalid_argument("policy \"" + kind + "\" cannot be asked as a function");
}

class Wrapper {
 public:
  explicit Wrapper(const WrapRequest& request)
      : request_(request), mixed_precision_(request.settings.value("mixed_precision", Json())) {}

  std::vector<WrapTarget> targets;

  // Returns the elements that got wrapped. `path` is empty for the root, which is left to the caller.
  std::int64_t recursive(sdk::Module& module, const std::string& path, const Json& policy) {
    const std::int64_t numel = unwrapped_numel(module);
    if (!asked(policy, module, true, numel)) return 0;
    std::int64_t wrapped = 0;
    for (const auto& [name, child] : module.child_modules()) {
      if (!request_.ignored_modules.contains(child.get()))
        wrapped += recursive(*child, dotted(path, name), policy);
    }
    if (&module == &request_.root || !asked(policy, module, false, numel - wrapped)) return wrapped;
    Json settings = request_.settings;
    if (keeps_full_precision(mixed_precision_, module)) settings["mixed_precision"] = nullptr;
    targets.push_back({path, &module, std::move(settings)});
    return numel;
  }

  // Policies that decide module by module.
  void by_module(sdk::Module& module, const std::string& path, const Json& policy) {
    for (const auto& [name, child] : module.child_modules()) {
      if (visited_.insert(child.get()).second) by_module(*child, dotted(path, name), policy);
    }
    if (request_.ignored_modules.contains(&module)) return;
    Json wanted = chosen(policy, module);
    if (&module == &request_.root) return;  // asked like the others, and wrapped by whoever asks
    const bool full_precision = keeps_full_precision(mixed_precision_, module);
    if (wanted == false && !full_precision) return;
    Json settings = request_.settings;
    if (wanted.is_object()) settings.update(wanted);
    if (full_precision) settings["mixed_precision"] = nullptr;
    targets.push_back({path, &module, std::move(settings)});
  }

 private:
  bool asked(const Json& policy, const sdk::Module& module, bool recurse, std::int64_t numel) const {
    return wants(policy, module, recurse, numel) ||
           (!mixed_precision_.is_null() && (recurse || keeps_full_precision(mixed_precision_, module)));
  }

  // false, true, or settings. The first rule for the module's class decides; an empty table of settings is
  // false.
  static Json chosen(const Json& policy, const sdk::Module& module) {
    if (policy.at("policy") == "module_wrap") return is_any(module, policy.at("classes"));
    for (const Json& rule : policy.at("rules")) {
      if (!is_a(module, rule.at("class"))) continue;
      const Json& answer = rule.at("wrap");
      if (answer.is_number()) {
        throw sdk::Error(
            "ValueError",
            "The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it "
            "returned " +
                answer.dump());
      }
      return answer.is_object() && answer.empty() ? Json(false) : answer;
    }
    return false;
  }

  std::int64_t unwrapped_numel(sdk::Module& module) const {
    std::int64_t numel = 0;
    for (const sdk::Slot& slot : parameter_slots(module)) {
      if (!request_.ignored_parameters.contains(slot.tensor().unsafeGetTensorImpl()))
        numel += slot.tensor().numel();
    }
    return numel;
  }

  const WrapRequest& request_;
  Json mixed_precision_;  // the root's
  std::set<const sdk::Module*> visited_;
};

void refuse_wrapped(const WrapRequest& request) {
  for (const auto& [path, module] : named_modules(request.root)) {
    if (!request.wrapped.contains(module)) continue;
    throw sdk::Error("ValueError",
                     "FSDP auto wrapping requires modules to not already have FSDP applied but found " +
                         path + " in\n" + request.root.class_name());
  }
}

void warn_of_full_precision(const WrapRequest& request, const Json& mixed_precision, sdk::Context& context) {
  std::set<std::string> classes;
  for (const auto& [path, module] : named_modules(request.root)) {
    if (keeps_full_precision(mixed_precision, *module)) classes.insert(module->class_name());
  }
  if (classes.empty()) return;
  std::string list;
  for (const std::string& name : classes) list += (list.empty() ? "" : ", ") + name;
  context.warn(
      "UserWarning",
      "Both mixed precision and an auto_wrap_policy were specified to FSDP, where the wrapped module has "
      "submodules of type:\n{" +
          list +
          "}\nThese modules will be wrapped as separate FSDP instacnes with mixed precision disabled.");
}

}  // namespace

std::string dotted(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

bool keeps_full_precision(const Json& mixed_precision, const sdk::Module& module) {
  if (mixed_precision.is_null()) return false;
  return mixed_precision.contains("module_classes_to_ignore")
             ? is_any(module, mixed_precision.at("module_classes_to_ignore"))
             : is_batch_norm(module);
}

std::vector<WrapTarget> wrap_targets(const WrapRequest& original, sdk::Context& context) {
  refuse_wrapped(original);
  WrapRequest request = original;
  const Json policy = request.settings.at("auto_wrap");
  request.settings.erase("auto_wrap");
  warn_of_full_precision(request, request.settings.value("mixed_precision", Json()), context);

  Wrapper wrapper(request);
  const std::string kind = policy.at("policy");
  if (kind != "module_wrap" && kind != "custom") {
    wrapper.recursive(request.root, "", policy);
    return std::move(wrapper.targets);
  }
  wrapper.by_module(request.root, "", policy);
  std::set<const sdk::Module*> targets;
  for (const WrapTarget& target : wrapper.targets) targets.insert(target.module);
  const bool use_orig_params = request.settings.value("use_orig_params", false);
  for (const std::string& message :
       frozen_mixes(request.root, targets, request.ignored_parameters, use_orig_params)) {
    if (!use_orig_params) throw sdk::Error("ValueError", message);
    context.warn("UserWarning", message);
  }
  return std::move(wrapper.targets);
}

}  // namespace fsdp_cts::reference
