#include "harness/sdk/cpp/verbs.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <csignal>
#include <limits>

#include "harness/protocol/pattern.hpp"
#include "harness/sdk/cpp/build_model.hpp"

namespace fsdp_cts::sdk {
namespace {

double norm_type(const Json& step) {
  const Json given = step.value("norm_type", Json(2.0));
  return given == "inf" ? std::numeric_limits<double>::infinity() : given.get<double>();
}

// A parameter or buffer of a model that is not sharded.
at::Tensor state_of(const Model& model, const std::string& name) {
  for (const Slot& slot : parameter_slots(*model.module))
    if (slot.name == name) return slot.tensor();
  for (const auto& [buffer_name, buffer] : named_buffers(*model.module))
    if (buffer_name == name) return buffer;
  throw Error("KeyError", "model '" + model.instance + "' has no parameter or buffer '" + name + "'");
}

// Its elements column after column, in memory of its own.
void restride(const at::Tensor& tensor) {
  tensor.set_data(tensor.detach().transpose(-2, -1).contiguous().transpose(-2, -1));
}

}  // namespace

void Verbs::act(const Json& step) {
  const std::string verb = step.at("verb");
  if (verb == "build") return build(step);
  if (verb == "shard") return operations_.shard(model(step));
  if (verb == "move") return operations_.move(model(step));
  if (verb == "cast")
    return operations_.cast(model(step), dtype_from_name(step.at("dtype").get<std::string>()),
                            step.value("match", ""));
  if (verb == "materialize") return operations_.materialize(model(step));
  if (verb == "optimizer") return optimizer(step);
  if (verb == "zero_grad") return zero_grad(step);
  if (verb == "forward") return forward(step);
  if (verb == "register_forward_method") {
    return operations_.register_forward_method(model(step), step.value("module", ""), step.at("method"));
  }
  if (verb == "loss") return loss(step);
  if (verb == "backward") {
    return operations_.backward(one(step.value("loss", "loss")), step.value("create_graph", false));
  }
  if (verb == "leaf") {
    at::Tensor leaf = one(step.at("input")).detach().clone().set_requires_grad(true);
    in_.registers_[step.at("into")] = {std::move(leaf)};
    return;
  }
  if (verb == "take_gradient") return take_gradient(step);
  if (verb == "step_in_backward") return step_in_backward(step);
  if (verb == "step") return in_.optimizers_.at(step.value("optimizer", "optimizer")).optimizer->step();
  if (verb == "scaler") {
    Interpreter::NamedOptimizer& of = in_.optimizers_.at(step.value("optimizer", "optimizer"));
    in_.scalers_[step.value("as", "scaler")] =
        operations_.make_scaler(in_.model(of.instance), *of.optimizer, step);
    return;
  }
  if (verb == "scale_loss") {
    in_.registers_[step.value("into", "scaled")] = {scaler(step).scale(one(step.value("loss", "loss")))};
    return;
  }
  if (verb == "unscale") return scaler(step).unscale();
  if (verb == "scaler_step") return scaler(step).step();
  if (verb == "update_scale") {
    scaler(step).update();
    in_.registers_[step.value("into", "scale")] = {at::scalar_tensor(scaler(step).value(), at::kFloat)};
    return;
  }
  if (verb == "mode") {
    Model of = part(step);
    return operations_.set_training(of, step.at("mode") == "train");
  }
  if (verb == "enter") return enter(step);
  if (verb == "leave") return leave(step);
  if (verb == "meanwhile") return in_.meanwhile_.push_back(step);
  if (verb == "mutate") return mutate(step);
  if (verb == "set_requires_grad") {
    const Pattern match(step.value("match", ".*"));
    for (const Parameter& parameter : operations_.parameters(model(step))) {
      if (match.found_in(parameter.name))
        operations_.set_requires_grad(model(step), parameter.name, step.at("value"));
    }
    return;
  }
  if (verb == "set_buffer") {
    return operations_.set_buffer(model(step), step.at("name"),
                                  dtype_from_name(step.at("dtype").get<std::string>()));
  }
  if (verb == "restride") return restride(state_of(model(step), step.at("name")));
  if (verb == "state_dict") return state_dict(step);
  if (verb == "load_state_dict") return load_state_dict(step);
  if (verb == "optimizer_state_dict") return optimizer_state_dict(step);
  if (verb == "load_optimizer_state_dict") return load_optimizer_state_dict(step);
  if (verb == "save_checkpoint")
    return operations_.save_checkpoint(checkpoint(step, in_.context().a_case.saved));
  if (verb == "load_checkpoint")
    return operations_.load_checkpoint(checkpoint(step, in_.context().a_case.continued));
  if (verb == "zero_parameters") return operations_.zero_parameters(model(step));
  if (verb == "foreach_mul") return foreach_mul(step);
  if (verb == "clip_grad_norm") {
    Model of = part(step);
    in_.registers_[step.value("into", "norm")] = {
        operations_.clip_grad_norm(of, step.at("max_norm"), norm_type(step))};
    return;
  }
  if (verb == "register_comm_hook") {
    Model of = part(step);
    return operations_.control(of, step);
  }
  if (verb == "delay") return delay(step);
  if (verb == "end_process") {
    std::raise(SIGKILL);
    return;
  }
  static const std::vector<std::string> controls{"compile",
                                                 "set_requires_gradient_sync",
                                                 "set_requires_all_reduce",
                                                 "set_reshard_after_backward",
                                                 "set_reshard_after_forward",
                                                 "set_is_last_backward",
                                                 "set_unshard_in_backward",
                                                 "set_unshard_async_op",
                                                 "set_gradient_divide_factor",
                                                 "set_force_sum_reduction_for_comms",
                                                 "set_all_reduce_hook",
                                                 "set_post_optim_event",
                                                 "unshard",
                                                 "wait_unshard",
                                                 "reshard",
                                                 "set_forward_prefetch",
                                                 "set_backward_prefetch"};
  if (std::find(controls.begin(), controls.end(), verb) != controls.end())
    return operations_.control(model(step), step);
  throw std::invalid_argument("no verb is called \"" + verb + "\"");
}

Model Verbs::part(const Json& step) {
  const Model& whole = model(step);
  Module& module = whole.module->child(step.value("module", ""));
  return {whole.instance, std::dynamic_pointer_cast<Module>(module.shared_from_this()), whole.plan};
}

void Verbs::build(const Json& step) {
  const std::string instance = step.value("model", "model");
  const Json& plans = in_.context_.a_case.plans;
  const std::string where = step.value("device", "cpu");  // "cpu" stands for the testee's own device
  const auto to_meta = where == "meta" ? operations_.to_meta() : nullptr;
  const c10::Device device = where == "host" || to_meta ? c10::Device(c10::DeviceType::CPU)
                             : where == "meta"          ? c10::Device(c10::DeviceType::Meta)
                                                        : operations_.device();
  in_.models_.erase(instance);
  in_.models_[instance] = {instance,
                           build_model(in_.context_.a_case.models.at(instance), in_.context_.data, instance,
                                       device, in_.context_.recorder),
                           plans.contains(instance) ? plans.at(instance) : Json()};
  if (to_meta) to_meta(*in_.models_[instance].module);
  if (in_.traced_) trace_computation(*in_.models_[instance].module, in_.context_.trace);
}

void Verbs::optimizer(const Json& step) {
  Model& target = model(step);
  in_.optimizers_[step.value("as", "optimizer")] = {target.instance,
                                                    operations_.make_optimizer(target, step)};
}

// Of a model when one is named, else of an optimizer.
void Verbs::zero_grad(const Json& step) {
  const bool to_none = step.value("set_to_none", true);
  if (step.contains("model") && !step.at("model").is_null() && !step.contains("optimizer")) {
    return operations_.zero_grad(model(step), to_none);
  }
  in_.optimizers_.at(step.value("optimizer", "optimizer")).optimizer->zero_grad(to_none);
}

Tensors Verbs::value(const std::string& name) {
  if (const auto found = in_.registers_.find(name); found != in_.registers_.end()) return found->second;
  if (std::optional<at::Tensor> tensor = in_.context_.data.find("inputs/" + name)) {
    // The copy does not make the host wait for the device, since the program has not asked it to.
    return {tensor->to(operations_.device(), /*non_blocking=*/true)};
  }
  throw std::invalid_argument("\"" + name + "\" is neither a register nor an input of the data file");
}

at::Tensor Verbs::one(const std::string& name) {
  return only_tensor(name, value(name));
}

void Verbs::forward(const Json& step) {
  Tensors inputs;
  const Json& names = step.at("input");
  for (const Json& name : names.is_array() ? names : Json::array({names})) {
    for (at::Tensor& tensor : value(name)) inputs.push_back(std::move(tensor));
  }
  if (step.contains("chunk") && step.at("chunk").is_array()) {
    const std::size_t index = step.at("chunk").at(0);
    for (at::Tensor& input : inputs) input = input.chunk(step.at("chunk").at(1), 0).at(index);
  }
  if (step.value("host", false)) {
    for (at::Tensor& input : inputs) input = input.cpu();
  }
  const c10::AutoGradMode grad(c10::GradMode::is_enabled() && step.value("grad", true));
  const Json output = step.value("output", Json("output"));
  const bool named = output.is_array();  // each; else one name holds them all, as inputs of another module
  for (const Json& name : named ? output : Json::array({output}))
    in_.registers_.erase(name.get<std::string>());
  const std::string module = step.value("module", "");
  Tensors outputs = step.contains("method")
                        ? operations_.call_method(model(step), module, step.at("method"), std::move(inputs))
                        : operations_.forward(model(step), module, std::move(inputs));
  if (!named) {
    in_.registers_[output.get<std::string>()] = std::move(outputs);
    return;
  }
  if (outputs.size() != output.size()) {
    throw std::invalid_argument("the module returns " + std::to_string(outputs.size()) +
                                " outputs and the step names " + std::to_string(output.size()));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    in_.registers_[output.at(i).get<std::string>()] = {std::move(outputs[i])};
}

void Verbs::loss(const Json& step) {
  const Json of = step.value("of", Json("output"));
  at::Tensor total;
  for (const Json& name : of.is_array() ? of : Json::array({of})) {
    const at::Tensor next = one(name);
    total = total.defined() ? total + next : next;
  }
  const std::string kind = step.at("kind");
  at::Tensor result;
  if (kind == "sum") {
    result = total.sum();
  } else if (kind == "dot") {
    result = (total * one(step.at("with"))).sum();
  } else if (kind == "mse") {
    result = at::mse_loss(total, one(step.at("with")));
  } else if (kind == "cross_entropy") {
    result = at::cross_entropy_loss(total.reshape({-1, total.size(-1)}), one(step.at("with")).reshape({-1}),
                                    {}, at::Reduction::Sum);
  } else {
    throw std::invalid_argument("no loss is called \"" + kind + "\"; there are sum, dot, mse, cross_entropy");
  }
  in_.registers_[step.value("into", "loss")] = {result};
  operations_.sleep(in_.delay_after_loss_);
}

void Verbs::take_gradient(const Json& step) {
  const std::string of = step.at("of");
  const at::Tensor gradient = one(of).grad();
  if (!gradient.defined()) throw std::invalid_argument("\"" + of + "\" has no gradient");
  in_.registers_[step.at("into")] = {gradient.detach().clone()};
}

// The optimizer is given the one parameter whose gradient has just come: all others have none by now.
void Verbs::step_in_backward(const Json& step) {
  Interpreter::NamedOptimizer& of = in_.optimizers_.at(step.value("optimizer", "optimizer"));
  Model& updated = in_.model(of.instance);
  std::int64_t& calls = in_.gradient_hooks_[of.instance];
  for (const Parameter& parameter : operations_.parameters(updated)) {
    if (!parameter.requires_grad.value_or(parameter.value.requires_grad())) continue;
    operations_.hook_gradient(updated, parameter.name,
                              [&calls, optimizer = of.optimizer.get()](at::Tensor received) {
                                ++calls;
                                optimizer->step();
                                received.mutable_grad().reset();
                              });
  }
}

// One operation over all copies; the result is what became of them, flattened, one behind the other.
void Verbs::foreach_mul(const Json& step) {
  std::vector<at::Tensor> tensors;
  for (std::size_t copy = 0; copy < step.value("copies", std::size_t{1}); ++copy) {
    for (const Json& name : step.at("of")) tensors.push_back(one(name).clone());
  }
  operations_.foreach_mul(tensors, step.at("by").get<double>());
  for (at::Tensor& tensor : tensors) tensor = tensor.flatten();
  in_.registers_[step.value("into", "product")] = {at::cat(tensors)};
}

// A tensor shaped like `like`, every dimension `grow` larger and filled; or the part of a data tensor that
// lies where `like` lies; or, when the step names no values, a copy.
at::Tensor Verbs::replacement(const Json& step, const at::Tensor& like) {
  const auto given = [&step](const char* key) { return step.contains(key) && !step.at(key).is_null(); };
  if (given("fill")) {
    std::vector<std::int64_t> shape = like.sizes().vec();
    for (std::int64_t& size : shape) size += step.value("grow", 0);
    return at::full(shape, step.at("fill").get<double>(), like.options().requires_grad(false));
  }
  if (!given("from")) return like.detach().clone();
  const std::string name = step.at("parameter");
  const at::Tensor global = one(step.at("from")).flatten();
  for (const Parameter& parameter : operations_.parameters(model(step))) {
    if (parameter.name != name) continue;
    std::vector<at::Tensor> parts{global.narrow(0, 0, 0)};
    for (const Extent& extent : parameter.placement.extents)
      parts.push_back(global.narrow(0, extent.offset, extent.length));
    return at::cat(parts).view(like.sizes()).to(like.scalar_type());
  }
  throw std::invalid_argument("no parameter is called \"" + name + "\"");
}

void Verbs::mutate(const Json& step) {
  c10::AutoGradMode no_grad(false);
  const std::string name = step.at("parameter"), how = step.at("how");
  at::Tensor exposed = operations_.exposed(model(step), name);
  const bool of_gradient = step.value("what", "value") == "grad";
  if (of_gradient && how == "none") return exposed.mutable_grad().reset();
  if (of_gradient && how != "replace" && !exposed.grad().defined())
    return;  // nothing on this rank to write to
  at::Tensor target = of_gradient && how != "replace" ? exposed.mutable_grad() : exposed;
  const at::Tensor fresh = replacement(step, target);
  if (how == "inplace") {
    target.copy_(fresh);
  } else if (how == "data") {
    target.set_data(fresh);
  } else if (how == "replace" && of_gradient) {
    exposed.mutable_grad() = fresh;
  } else if (how == "replace") {
    operations_.replace(model(step), name, fresh.set_requires_grad(exposed.requires_grad()));
  } else {
    throw std::invalid_argument("a " + step.value("what", "value") + " is not mutated by \"" + how + "\"");
  }
}

void Verbs::enter(const Json& step) {
  if (step.at("scope") == "no_grad") {
    ++in_.no_grad_depth_;
    in_.scopes_.push_back([&in = in_] { --in.no_grad_depth_; });
    return;
  }
  Model of = part(step);
  in_.scopes_.push_back(operations_.enter(of, step));
}

void Verbs::leave(const Json&) {
  if (in_.scopes_.empty()) throw std::invalid_argument("leave without enter");
  const std::function<void()> leave = std::move(in_.scopes_.back());
  in_.scopes_.pop_back();
  leave();
}

void Verbs::state_dict(const Json& step) {
  Model of = part(step);
  const bool has_options = step.contains("rank0_only") || step.contains("offload_to_cpu");
  const FullStateDictOptions options{step.value("rank0_only", false), step.value("offload_to_cpu", false)};
  in_.state_dicts_[step.at("as")] = {of.instance,
                                     has_options ? operations_.full_state_dict(of, options)
                                                 : operations_.state_dict(of, step.value("kind", "full"))};
}

void Verbs::load_state_dict(const Json& step) {
  const StateDict& state = in_.state_dicts_.at(step.at("from")).second;
  Model of = part(step);
  if (step.value("broadcast_from_rank0", false)) return operations_.broadcast_state_dict(of, state);
  operations_.load_state_dict(of, state);
}

void Verbs::optimizer_state_dict(const Json& step) {
  Interpreter::NamedOptimizer& of = in_.optimizers_.at(step.value("optimizer", "optimizer"));
  in_.state_dicts_[step.at("as")] = {
      of.instance,
      operations_.optimizer_state_dict(in_.model(of.instance), *of.optimizer, step.value("kind", "full"))};
}

void Verbs::load_optimizer_state_dict(const Json& step) {
  Interpreter::NamedOptimizer& of = in_.optimizers_.at(step.value("optimizer", "optimizer"));
  operations_.load_optimizer_state_dict(in_.model(of.instance), *of.optimizer,
                                        in_.state_dicts_.at(step.at("from")).second);
}

Checkpoint Verbs::checkpoint(const Json& step, const std::filesystem::path& folder) {
  const auto optimizer_named = [&](const char* key) {
    return step.contains(key) ? in_.optimizers_.at(step.at(key)).optimizer.get() : nullptr;
  };
  Checkpoint result{step.at("format"), folder, &model(step), optimizer_named("optimizer")};
  if (step.contains("like")) result.like = &in_.model(step.at("like"));
  result.optimizer_like = optimizer_named("optimizer_like");
  return result;
}

void Verbs::delay(const Json& step) {
  const std::chrono::milliseconds duration(step.at("milliseconds").get<int>());
  const std::string at = step.value("at", "now");
  if (at == "now") {
    operations_.sleep(duration);
  } else if (at == "after_loss") {
    in_.delay_after_loss_ = duration;
  } else {
    operations_.delay(duration, at);
  }
}

}  // namespace fsdp_cts::sdk
