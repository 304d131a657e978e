#include "impl/testee/testee.hpp"

#include <torch/csrc/autograd/variable.h>

#include <array>
#include <map>
#include <set>

#include "fsdp/hooks.hpp"
#include "fsdp/wrap/module_class.hpp"

namespace fsdp_cts::testee {
namespace {

bool hook_sdk_module(torch::nn::Module& module, const fsdp::ForwardHooks& hooks) {
  auto* hooked = dynamic_cast<sdk::Module*>(&module);
  if (hooked == nullptr) return false;
  hooked->add_pre_forward_hook(hooks.before, /*prepend=*/true);
  hooked->add_post_forward_hook(hooks.after);
  if (hooks.failed) hooked->add_failed_forward_hook(hooks.failed);
  return true;
}

// A described module is what it is called, and of the type it is made from.
std::vector<std::string> classes_of_sdk_module(const torch::nn::Module& module) {
  const auto* described = dynamic_cast<const sdk::Module*>(&module);
  if (described == nullptr) return {};
  return {described->class_name(), described->type()};
}

std::optional<std::string> unsupported_by_composable(const sdk::Json& unit) {
  const sdk::Json fixed = {
      {"use_orig_params", true}, {"limit_all_gathers", true}, {"backward_prefetch", "BACKWARD_PRE"}};
  for (const auto& [key, only] : fixed.items()) {
    if (unit.contains(key) && unit.at(key) != only)
      return "the composable form has " + key + "=" + only.dump() + " and no other";
  }
  return std::nullopt;
}

std::optional<std::string> unsupported_plan(const sdk::Json& plan) {
  const std::string api = plan.at("api");
  for (const sdk::Json& unit : plan.at("units")) {
    if (api == "composable") {
      if (auto reason = unsupported_by_composable(unit)) return reason;
    }
    if (api != "fully_shard" && unit.at("modules").size() != 1) return "FSDP1 wraps one module at a time";
  }
  return std::nullopt;
}

bool flattened(const sdk::Json& plan) {
  if (plan.at("api") != "fsdp") return false;
  for (const sdk::Json& unit : plan.at("units")) {
    if (!unit.value("use_orig_params", false)) return true;
  }
  return false;
}

// Without original parameters there is none to change, but for its values in place.
bool needs_original_parameters(const sdk::Json& step) {
  return step.at("verb") == "mutate" &&
         (step.value("what", "value") != "value" || step.value("how", "inplace") != "inplace");
}

std::optional<std::string> unsupported_step(const sdk::Json& step, const std::string& api) {
  const std::string verb = step.at("verb");
  const bool fsdp2 = api == "fully_shard";
  if (verb == "enter" && step.at("scope") != "no_grad" && fsdp2)
    return step.at("scope").get<std::string>() + " belongs to the flat-parameter APIs";
  if (verb == "step_in_backward" && !fsdp2) return "hooks on gradients belong to fully_shard";
  if (verb == "register_forward_method" && !fsdp2) return "FSDP1 knows no method but forward";
  if (verb == "register_comm_hook" && api != "fsdp") return "communication hooks belong to the FSDP1 wrapper";
  if (verb == "compile") return "there is no graph compiler for C++";
  if (verb == "clip_grad_norm" && api == "composable") return "the composable form has no clip_grad_norm";
  if (verb == "delay" && fsdp2 && step.value("at", "") == "before_free")
    return "a delay inside fully_shard needs a hook that its public headers do not offer";
  return std::nullopt;
}

std::int64_t backward_hooks_on(const at::Tensor& tensor) {
  const auto* autograd = torch::autograd::impl::get_autograd_meta(tensor);
  if (autograd == nullptr || !autograd->cpp_hooks_list_) return 0;
  return static_cast<std::int64_t>(autograd->cpp_hooks_list_->size());
}

}  // namespace

Testee::Testee(Settings settings) : Testee(std::make_shared<Library>(std::move(settings))) {}

Testee::Testee(std::shared_ptr<Library> library)
    : LibraryOperations(library), fully_shard_(library), flat_parameter_(library), plain_(library) {
  fsdp::register_forward_hook_adapter(hook_sdk_module);
  fsdp::register_nominal_class_adapter(classes_of_sdk_module);
}

std::optional<std::string> Testee::unsupported(const sdk::Case& a_case) const {
  for (const auto& [instance, plan] : a_case.plans.items()) {
    if (auto reason = unsupported_plan(plan)) return "model \"" + instance + "\": " + *reason;
  }
  std::set<std::string> sharded;
  for (const sdk::Json& step : a_case.program) {
    const std::string instance = step.value("model", "model");
    if (!a_case.plans.contains(instance)) continue;
    const sdk::Json& plan = a_case.plans.at(instance);
    if (auto reason = unsupported_step(step, plan.at("api"))) return reason;
    if (sharded.contains(instance) && flattened(plan) && needs_original_parameters(step))
      return "with use_orig_params=False there is no original parameter to change, but for its values in "
             "place";
    if (step.at("verb") == "shard") sharded.insert(instance);
  }
  return std::nullopt;
}

void Testee::rendezvous(const sdk::Case& a_case) {
  LibraryOperations::rendezvous(a_case);
  for (sdk::Operations* operations :
       std::array<sdk::Operations*, 3>{&fully_shard_, &flat_parameter_, &plain_})
    operations->attach(&context());
}

void Testee::end_case() {
  fully_shard_.end_case();
  flat_parameter_.end_case();
  LibraryOperations::end_case();
}

void Testee::delay(std::chrono::milliseconds duration, const std::string& at) {
  flat_parameter_.delay(duration, at);
}

sdk::Operations& Testee::of(const sdk::Model& model) {
  if (!model.plan.is_object()) return plain_;
  if (model.plan.at("api") == "fully_shard") return fully_shard_;
  return flat_parameter_;
}

void Testee::shard(sdk::Model& model) {
  of(model).shard(model);
  if (!simulation()) return;
  // As findings call them; many parameters may lie in one storage.
  std::map<const c10::StorageImpl*, std::pair<at::Tensor, std::string>> buffers;
  for (const sdk::Parameter& parameter : parameters(model)) {
    if (!parameter.value.defined() || parameter.value.is_meta()) continue;
    auto& [tensor, names] = buffers[parameter.value.storage().unsafeGetStorageImpl()];
    tensor = parameter.value;
    names += (names.empty() ? "" : ", ") + parameter.name;
  }
  for (const auto& [storage, buffer] : buffers) simulation()->name_buffer(buffer.first, buffer.second);
}

void Testee::materialize(sdk::Model& model) {
  of(model).materialize(model);
}

std::unique_ptr<sdk::Optimizer> Testee::make_optimizer(sdk::Model& model, const sdk::Json& verb) {
  return of(model).make_optimizer(model, verb);
}

void Testee::control(sdk::Model& model, const sdk::Json& verb) {
  of(model).control(model, verb);
}

void Testee::hook_gradient(sdk::Model& model, const std::string& name, std::function<void(at::Tensor)> hook) {
  of(model).hook_gradient(model, name, std::move(hook));
}

std::function<void()> Testee::enter(sdk::Model& model, const sdk::Json& verb) {
  return of(model).enter(model, verb);
}

at::Tensor Testee::clip_grad_norm(sdk::Model& model, double max_norm, double norm_type) {
  return of(model).clip_grad_norm(model, max_norm, norm_type);
}

std::vector<sdk::Parameter> Testee::parameters(sdk::Model& model) {
  return of(model).parameters(model);
}

std::vector<sdk::Exposed> Testee::full_parameters(sdk::Model& model) {
  return of(model).full_parameters(model);
}

sdk::StateDict Testee::state_dict(sdk::Model& model, const std::string& kind) {
  return of(model).state_dict(model, kind);
}

sdk::StateDict Testee::full_state_dict(sdk::Model& model, const sdk::FullStateDictOptions& options) {
  return of(model).full_state_dict(model, options);
}

void Testee::load_state_dict(sdk::Model& model, const sdk::StateDict& state) {
  of(model).load_state_dict(model, state);
}

void Testee::broadcast_state_dict(sdk::Model& model, const sdk::StateDict& state) {
  of(model).broadcast_state_dict(model, state);
}

sdk::StateDict Testee::optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                            const std::string& kind) {
  return of(model).optimizer_state_dict(model, optimizer, kind);
}

void Testee::load_optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                       const sdk::StateDict& state) {
  of(model).load_optimizer_state_dict(model, optimizer, state);
}

void Testee::save_checkpoint(const sdk::Checkpoint& checkpoint) {
  of(*checkpoint.model).save_checkpoint(checkpoint);
}

void Testee::load_checkpoint(const sdk::Checkpoint& checkpoint) {
  of(*checkpoint.model).load_checkpoint(checkpoint);
}

void Testee::zero_parameters(sdk::Model& model) {
  of(model).zero_parameters(model);
}

std::vector<sdk::Unit> Testee::units(sdk::Model& model) {
  return of(model).units(model);
}

std::map<std::string, std::int64_t> Testee::counters(sdk::Model& model) {
  std::map<std::string, std::int64_t> counted = of(model).counters(model);
  if (const auto output = context().registers.find("output"); output != context().registers.end())
    counted["output_backward_hooks"] = backward_hooks_on(output->second.at(0));
  return counted;
}

void Testee::set_requires_grad(sdk::Model& model, const std::string& name, bool value) {
  of(model).set_requires_grad(model, name, value);
}

at::Tensor Testee::exposed(sdk::Model& model, const std::string& name) {
  return of(model).exposed(model, name);
}

void Testee::replace(sdk::Model& model, const std::string& name, at::Tensor tensor) {
  of(model).replace(model, name, std::move(tensor));
}

std::string Testee::training_state(sdk::Model& model) {
  return of(model).training_state(model);
}

}  // namespace fsdp_cts::testee
