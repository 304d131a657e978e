// Optimizer state as named tensors: what is read from an optimizer, and what may be put into one.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/python_text.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/optim.hpp"

namespace fsdp::optim {
namespace {

using Values = std::map<std::string, at::Tensor>;

/// What an optimizer keeps for one of its parameters.
struct Rules {
  std::string optimizer;
  std::set<std::string> required;
  std::set<std::string> optional = {};
};
const std::string kStep = "step";

/// A parameter of an optimizer, and what may be given for it.
struct Target {
  at::Tensor parameter;
  std::string place;  ///< for messages: optimizers know no names
  Rules rules;
};

std::string text_of(const std::set<std::string>& names) {
  return python_list({names.begin(), names.end()});
}

/// Throws RuntimeError unless every value has a target that takes it.
void validate(const std::vector<Target>& targets, const OptimizerState& state) {
  std::map<const c10::TensorImpl*, const Target*> by_tensor;
  for (const auto& target : targets) by_tensor[target.parameter.unsafeGetTensorImpl()] = &target;
  std::string faults;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& [parameter, values] : state) {
    const auto found = by_tensor.find(parameter.unsafeGetTensorImpl());
    if (found == by_tensor.end()) {
      faults += "\n\tThe state of a tensor of shape " + python_size(parameter.sizes()) +
                " is given, which is no parameter of the optimizer.";
      continue;
    }
    const auto& [own, place, rules] = *found->second;
    if (!seen.insert(found->first).second) faults += "\n\tThe state of " + place + " is given twice.";
    for (const auto& name : rules.required) {
      if (!values.contains(name))
        faults += "\n\tThe state of " + place + " lacks '" + name + "': " + rules.optimizer + " keeps " +
                  text_of(rules.required) + ".";
    }
    for (const auto& [name, value] : values) {
      if (!rules.required.contains(name) && !rules.optional.contains(name)) {
        faults += "\n\tThe state of " + place + " has '" + name + "': " + rules.optimizer + " keeps " +
                  text_of(rules.required) + ".";
      } else if (!value.defined() || (name == kStep && value.numel() != 1)) {
        faults += "\n\t'" + name + "' of " + place + " is not defined, or no scalar.";
      } else if (name != kStep && value.sizes() != own.sizes()) {
        faults += "\n\tsize mismatch for '" + name + "' of " + place + ": the state has shape " +
                  python_size(value.sizes()) + ", the optimizer expects " + python_size(own.sizes()) + ".";
      }
    }
  }
  if (!faults.empty()) throw RuntimeError("Error(s) in loading optimizer state:" + faults);
}

at::Tensor step_tensor(int64_t step) {
  auto value = at::empty({}, at::TensorOptions(at::kLong));
  value.fill_(step);
  return value;
}

/// As the parameter is updated with it: on its device, and in its dtype where both are floating-point.
at::Tensor copied(const at::Tensor& value, const at::Tensor& parameter) {
  const bool cast = value.is_floating_point() && parameter.is_floating_point();
  const auto dtype = cast ? parameter.scalar_type() : value.scalar_type();
  return value.detach().to(parameter.device(), dtype).clone();
}

std::string place_of(size_t group, size_t index) {
  return "parameter " + std::to_string(index) + " of group " + std::to_string(group);
}

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

/// One class of torch::optim.
struct Kind {
  std::string name;
  std::function<Values(const OptimizerParamState&)> read;
  std::function<Rules(const OptimizerOptions&)> rules;
  std::function<std::unique_ptr<OptimizerParamState>(const Values&, const at::Tensor& parameter)> make;
};

template <class Options, class State>
Kind adam_kind(const std::string& name) {
  return {name,
          [](const OptimizerParamState& any) {
            const auto& state = static_cast<const State&>(any);
            Values values{{kStep, step_tensor(state.step())},
                          {"exp_avg", state.exp_avg()},
                          {"exp_avg_sq", state.exp_avg_sq()}};
            if (state.max_exp_avg_sq().defined()) values["max_exp_avg_sq"] = state.max_exp_avg_sq();
            return values;
          },
          [name](const OptimizerOptions& options) {
            Rules rules{name, {kStep, "exp_avg", "exp_avg_sq"}};
            const bool amsgrad = static_cast<const Options&>(options).amsgrad();
            (amsgrad ? rules.required : rules.optional).insert("max_exp_avg_sq");
            return rules;
          },
          [](const Values& values, const at::Tensor& parameter) {
            auto state = std::make_unique<State>();
            state->step(values.at(kStep).template item<int64_t>());
            state->exp_avg(copied(values.at("exp_avg"), parameter));
            state->exp_avg_sq(copied(values.at("exp_avg_sq"), parameter));
            if (values.contains("max_exp_avg_sq"))
              state->max_exp_avg_sq(copied(values.at("max_exp_avg_sq"), parameter));
            return state;
          }};
}

Kind sgd_kind() {
  using torch::optim::SGDParamState;
  return {"SGD",
          [](const OptimizerParamState& any) {
            const auto& buffer = static_cast<const SGDParamState&>(any).momentum_buffer();
            return buffer.defined() ? Values{{"momentum_buffer", buffer}} : Values{};
          },
          [](const OptimizerOptions&) {
            return Rules{"SGD", {"momentum_buffer"}};
          },
          [](const Values& values, const at::Tensor& parameter) {
            auto state = std::make_unique<SGDParamState>();
            state->momentum_buffer(copied(values.at("momentum_buffer"), parameter));
            return state;
          }};
}

Kind kind_of(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<const SGD*>(&optimizer)) return sgd_kind();
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer))
    return adam_kind<torch::optim::AdamOptions, AdamParamState>("Adam");
  if (dynamic_cast<const AdamW*>(&optimizer)) return adam_kind<AdamWOptions, AdamWParamState>("AdamW");
  throw InvalidArgument(
      "The state of this optimizer cannot be read or set: torch::optim's SGD, Adam and AdamW, and "
      "fsdp::optim::Adam, can. For others write an OptimizerState by hand.");
}

}  // namespace

OptimizerState state_of(const torch::optim::Optimizer& optimizer) {
  const auto kind = kind_of(optimizer);
  OptimizerState result;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state == optimizer.state().end()) continue;
      if (auto values = kind.read(*state->second); !values.empty())
        result.emplace_back(parameter, std::move(values));
    }
  }
  return result;
}

void load_state(torch::optim::Optimizer& optimizer, const OptimizerState& state) {
  const at::NoGradGuard no_grad;
  const auto kind = kind_of(optimizer);
  std::vector<Target> targets;
  const auto& groups = optimizer.param_groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto rules = kind.rules(groups[g].has_options() ? groups[g].options() : optimizer.defaults());
    for (size_t i = 0; i < groups[g].params().size(); ++i)
      targets.push_back({groups[g].params()[i], place_of(g, i), rules});
  }
  validate(targets, state);
  std::remove_reference_t<decltype(optimizer.state())> loaded;
  for (const auto& [parameter, values] : state)
    loaded[parameter.unsafeGetTensorImpl()] = kind.make(values, parameter);
  optimizer.state() = std::move(loaded);
}

OptimizerState state_of(const Adam& adam) {
  OptimizerState result;
  for (const auto& group : adam.groups()) {
    for (const auto& parameter : group.parameters) {
      const auto* state = adam.state(parameter);
      if (!state) continue;
      result.emplace_back(parameter, Values{{kStep, step_tensor(state->step)},
                                            {"exp_avg", state->exp_avg},
                                            {"exp_avg_sq", state->exp_avg_sq}});
    }
  }
  return result;
}

void load_state(Adam& adam, const OptimizerState& state) {
  const at::NoGradGuard no_grad;
  std::vector<Target> targets;
  const Rules rules{"Adam", {kStep, "exp_avg", "exp_avg_sq"}};
  for (size_t g = 0; g < adam.groups_.size(); ++g) {
    for (size_t i = 0; i < adam.groups_[g].parameters.size(); ++i)
      targets.push_back({adam.groups_[g].parameters[i], place_of(g, i), rules});
  }
  validate(targets, state);
  decltype(adam.states_) loaded;
  for (const auto& [parameter, values] : state) {
    loaded[parameter.unsafeGetTensorImpl()] = {values.at(kStep).item<int64_t>(),
                                               copied(values.at("exp_avg"), parameter),
                                               copied(values.at("exp_avg_sq"), parameter)};
  }
  adam.states_ = std::move(loaded);
}

}  // namespace fsdp::optim
