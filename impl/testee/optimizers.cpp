#include "impl/testee/optimizers.hpp"

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <stdexcept>
#include <tuple>
#include <utility>

#include "fsdp/optim.hpp"
#include "harness/protocol/pattern.hpp"

namespace fsdp_cts::testee {
namespace {

using Parameters = std::vector<sdk::OptimizerParameter>;
struct Group {
  sdk::Json settings;  // the verb's, overridden by the group's own
  Parameters parameters;
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> result;
    for (const sdk::OptimizerParameter& parameter : parameters) result.push_back(parameter.tensor);
    return result;
  }
  double number(const char* key, double otherwise) const {
    return settings.contains(key) && settings.at(key).is_number() ? settings.at(key).get<double>()
                                                                  : otherwise;
  }
  std::tuple<double, double> betas(std::tuple<double, double> otherwise) const {
    const sdk::Json given = settings.value("betas", sdk::Json());
    return given.is_array() ? std::tuple<double, double>(given.at(0), given.at(1)) : otherwise;
  }
};

std::vector<at::Tensor> tensors_of(const std::vector<Group>& groups) {
  std::vector<at::Tensor> all;
  for (const Group& group : groups) {
    for (const at::Tensor& tensor : group.tensors()) all.push_back(tensor);
  }
  return all;
}

std::vector<Group> groups_of(const sdk::Json& verb, const Parameters& parameters) {
  const auto pattern = [](const sdk::Json& settings) {
    const sdk::Json match = settings.value("match", sdk::Json());
    return fsdp_cts::Pattern(match.is_string() ? match.get<std::string>() : ".*");
  };
  std::vector<std::pair<fsdp_cts::Pattern, Group>> groups;
  if (const sdk::Json own = verb.value("groups", sdk::Json()); own.is_array()) {
    for (const sdk::Json& group : own) {
      sdk::Json settings = verb;
      for (const auto& [key, value] : group.items()) {
        if (!value.is_null()) settings[key] = value;
      }
      groups.emplace_back(pattern(group), Group{settings, {}});
    }
  } else {
    groups.emplace_back(fsdp_cts::Pattern(".*"), Group{verb, {}});
  }
  const fsdp_cts::Pattern selected = pattern(verb);
  for (const sdk::OptimizerParameter& parameter : parameters) {
    if (!selected.found_in(parameter.name)) continue;
    for (auto& [match, group] : groups) {
      if (!match.found_in(parameter.name)) continue;
      group.parameters.push_back(parameter);
      break;
    }
  }
  std::vector<Group> result;
  for (auto& [match, group] : groups) result.push_back(std::move(group));
  return result;
}

// What all of them have in common. `Engine` makes the steps.
template <class Engine>
class Grouped : public LibraryOptimizer {
 public:
  void step() override { engine_.step(); }
  void zero_grad(bool set_to_none) override { engine_.zero_grad(set_to_none); }
  std::vector<at::Tensor> tensors() const override { return tensors_of(groups_); }
  fsdp::OptimizerState library_state() const override { return fsdp::optim::state_of(engine_); }
  void load_library_state(const fsdp::OptimizerState& state) override {
    fsdp::optim::load_state(engine_, state);
  }
  std::vector<State> state() const override {
    std::vector<State> states;
    for (const Group& group : groups_) {
      for (const sdk::OptimizerParameter& parameter : group.parameters) {
        for (const auto& [name, value] : kept(parameter.tensor))
          if (value.defined()) states.push_back({parameter.name, name, value});
      }
    }
    return states;
  }

 protected:
  using Kept = std::vector<std::pair<const char*, at::Tensor>>;

  template <class... Arguments>
  explicit Grouped(std::vector<Group> groups, Arguments&&... of_engine)
      : engine_(std::forward<Arguments>(of_engine)...), groups_(std::move(groups)) {}
  // Of one parameter, read from the engine itself: the library's word on states is what is judged.
  virtual Kept kept(const at::Tensor& parameter) const = 0;

  Engine engine_;

 private:
  std::vector<Group> groups_;
};

// Null before the parameter's first step.
template <class ParamState>
const ParamState* torch_state(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : static_cast<const ParamState*>(found->second.get());
}

template <class Options, class Set>
std::vector<torch::optim::OptimizerParamGroup> torch_groups(const std::vector<Group>& groups,
                                                            const Set& set) {
  std::vector<torch::optim::OptimizerParamGroup> result;
  for (const Group& group : groups) {
    auto options = std::make_unique<Options>(group.number("lr", 1e-3));
    set(*options, group);
    result.emplace_back(group.tensors(), std::move(options));
  }
  return result;
}

class Sgd : public Grouped<torch::optim::SGD> {
 public:
  explicit Sgd(const std::vector<Group>& groups)
      : Grouped(
            groups,
            torch_groups<torch::optim::SGDOptions>(groups,
                                                   [](torch::optim::SGDOptions& options, const Group& group) {
                                                     options.momentum(group.number("momentum", 0));
                                                     options.weight_decay(group.number("weight_decay", 0));
                                                   }),
            torch::optim::SGDOptions(1e-3)) {}

 private:
  Kept kept(const at::Tensor& parameter) const override {
    const auto* state = torch_state<torch::optim::SGDParamState>(engine_, parameter);
    return state == nullptr ? Kept() : Kept{{"momentum_buffer", state->momentum_buffer()}};
  }
};

class Adam : public Grouped<fsdp::optim::Adam> {
 public:
  Adam(const std::vector<Group>& groups, bool decoupled) : Grouped(groups, adam_groups(groups, decoupled)) {}

 private:
  Kept kept(const at::Tensor& parameter) const override {
    const fsdp::optim::AdamState* state = engine_.state(parameter);
    return state == nullptr ? Kept() : Kept{{"exp_avg", state->exp_avg}, {"exp_avg_sq", state->exp_avg_sq}};
  }

  static std::vector<fsdp::optim::AdamGroup> adam_groups(const std::vector<Group>& groups, bool decoupled) {
    std::vector<fsdp::optim::AdamGroup> result;
    for (const Group& group : groups) {
      fsdp::optim::AdamOptions options;
      options.lr = group.number("lr", options.lr);
      std::tie(options.beta1, options.beta2) = group.betas({options.beta1, options.beta2});
      options.eps = group.number("eps", options.eps);
      options.weight_decay = group.number("weight_decay", decoupled ? 1e-2 : 0.0);
      options.decoupled_weight_decay = decoupled;
      options.foreach = group.settings.value("foreach", sdk::Json()) == true;
      result.push_back({group.tensors(), options});
    }
    return result;
  }
};

// LibTorch's own Adam or AdamW: the library has no amsgrad, and takes their states as it takes its own Adam's.
template <class Torch, class Options, class ParamState>
class TorchAdam : public Grouped<Torch> {
 public:
  explicit TorchAdam(const std::vector<Group>& groups)
      : Grouped<Torch>(groups,
                       torch_groups<Options>(groups,
                                             [](Options& options, const Group& group) {
                                               options.amsgrad(true);
                                               options.betas(group.betas(options.betas()));
                                               options.eps(group.number("eps", options.eps()));
                                               options.weight_decay(
                                                   group.number("weight_decay", options.weight_decay()));
                                             }),
                       Options(1e-3)) {}

 private:
  using typename Grouped<Torch>::Kept;

  Kept kept(const at::Tensor& parameter) const override {
    const auto* state = torch_state<ParamState>(this->engine_, parameter);
    if (state == nullptr) return {};
    return {{"exp_avg", state->exp_avg()},
            {"exp_avg_sq", state->exp_avg_sq()},
            {"max_exp_avg_sq", state->max_exp_avg_sq()}};
  }
};

}  // namespace

std::unique_ptr<LibraryOptimizer> make_optimizer(const sdk::Json& verb, const Parameters& parameters) {
  const std::string kind = verb.at("kind");
  const std::vector<Group> groups = groups_of(verb, parameters);
  if (verb.value("amsgrad", false)) {
    using namespace torch::optim;
    if (kind == "Adam")
      return std::make_unique<TorchAdam<torch::optim::Adam, AdamOptions, AdamParamState>>(groups);
    if (kind == "AdamW") return std::make_unique<TorchAdam<AdamW, AdamWOptions, AdamWParamState>>(groups);
    throw std::invalid_argument(kind + " knows no amsgrad; Adam and AdamW do");
  }
  if (kind == "SGD") return std::make_unique<Sgd>(groups);
  if (kind == "Adam" || kind == "AdamW") return std::make_unique<Adam>(groups, kind == "AdamW");
  throw std::invalid_argument("no optimizer is called \"" + kind + "\"; there are SGD, Adam and AdamW");
}

}  // namespace fsdp_cts::testee
