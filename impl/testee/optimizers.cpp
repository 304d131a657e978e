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

class Sgd : public LibraryOptimizer {
 public:
  explicit Sgd(std::vector<Group> groups)
      : groups_(std::move(groups)), sgd_(torch_groups(groups_), torch::optim::SGDOptions(1e-3)) {}
  void step() override { sgd_.step(); }
  void zero_grad(bool set_to_none) override { sgd_.zero_grad(set_to_none); }
  std::vector<at::Tensor> tensors() const override { return tensors_of(groups_); }
  fsdp::OptimizerState library_state() const override { return fsdp::optim::state_of(sgd_); }
  void load_library_state(const fsdp::OptimizerState& state) override {
    fsdp::optim::load_state(sgd_, state);
  }
  std::vector<State> state() const override {
    std::vector<State> states;
    for (const Group& group : groups_) {
      for (const sdk::OptimizerParameter& parameter : group.parameters) {
        const auto found = sgd_.state().find(parameter.tensor.unsafeGetTensorImpl());
        if (found == sgd_.state().end()) continue;
        const auto& buffer =
            static_cast<const torch::optim::SGDParamState&>(*found->second).momentum_buffer();
        if (buffer.defined()) states.push_back({parameter.name, "momentum_buffer", buffer});
      }
    }
    return states;
  }

 private:
  static std::vector<torch::optim::OptimizerParamGroup> torch_groups(const std::vector<Group>& groups) {
    std::vector<torch::optim::OptimizerParamGroup> result;
    for (const Group& group : groups) {
      torch::optim::SGDOptions options(group.number("lr", 1e-3));
      options.momentum(group.number("momentum", 0)).weight_decay(group.number("weight_decay", 0));
      result.emplace_back(group.tensors(), std::make_unique<torch::optim::SGDOptions>(options));
    }
    return result;
  }

  std::vector<Group> groups_;
  torch::optim::SGD sgd_;
};

class Adam : public LibraryOptimizer {
 public:
  Adam(std::vector<Group> groups, bool decoupled)
      : groups_(std::move(groups)), adam_(adam_groups(groups_, decoupled)) {}
  void step() override { adam_.step(); }
  void zero_grad(bool set_to_none) override { adam_.zero_grad(set_to_none); }
  std::vector<at::Tensor> tensors() const override { return tensors_of(groups_); }
  fsdp::OptimizerState library_state() const override { return fsdp::optim::state_of(adam_); }
  void load_library_state(const fsdp::OptimizerState& state) override {
    fsdp::optim::load_state(adam_, state);
  }
  std::vector<State> state() const override {
    std::vector<State> states;
    for (const Group& group : groups_) {
      for (const sdk::OptimizerParameter& parameter : group.parameters) {
        const fsdp::optim::AdamState* state = adam_.state(parameter.tensor);
        if (state == nullptr) continue;
        states.push_back({parameter.name, "exp_avg", state->exp_avg});
        states.push_back({parameter.name, "exp_avg_sq", state->exp_avg_sq});
      }
    }
    return states;
  }

 private:
  static std::vector<fsdp::optim::AdamGroup> adam_groups(const std::vector<Group>& groups, bool decoupled) {
    std::vector<fsdp::optim::AdamGroup> result;
    for (const Group& group : groups) {
      const sdk::Json betas = group.settings.value("betas", sdk::Json());
      fsdp::optim::AdamOptions options;
      options.lr = group.number("lr", options.lr);
      if (betas.is_array())
        std::tie(options.beta1, options.beta2) = std::pair<double, double>(betas.at(0), betas.at(1));
      options.eps = group.number("eps", options.eps);
      options.weight_decay = group.number("weight_decay", decoupled ? 1e-2 : 0.0);
      options.decoupled_weight_decay = decoupled;
      options.foreach = group.settings.value("foreach", sdk::Json()) == true;
      result.push_back({group.tensors(), options});
    }
    return result;
  }

  std::vector<Group> groups_;
  fsdp::optim::Adam adam_;
};

// LibTorch's own Adam or AdamW: the library has no amsgrad, and takes their states as it takes its own Adam's.
template <class Torch, class Options, class ParamState>
class TorchAdam : public LibraryOptimizer {
 public:
  explicit TorchAdam(std::vector<Group> groups)
      : groups_(std::move(groups)), adam_(torch_groups(groups_), Options(1e-3)) {}
  void step() override { adam_.step(); }
  void zero_grad(bool set_to_none) override { adam_.zero_grad(set_to_none); }
  std::vector<at::Tensor> tensors() const override { return tensors_of(groups_); }
  fsdp::OptimizerState library_state() const override { return fsdp::optim::state_of(adam_); }
  void load_library_state(const fsdp::OptimizerState& state) override {
    fsdp::optim::load_state(adam_, state);
  }
  std::vector<State> state() const override {
    std::vector<State> states;
    for (const Group& group : groups_) {
      for (const sdk::OptimizerParameter& parameter : group.parameters) {
        const auto found = adam_.state().find(parameter.tensor.unsafeGetTensorImpl());
        if (found == adam_.state().end()) continue;
        const auto& state = static_cast<const ParamState&>(*found->second);
        states.push_back({parameter.name, "exp_avg", state.exp_avg()});
        states.push_back({parameter.name, "exp_avg_sq", state.exp_avg_sq()});
        states.push_back({parameter.name, "max_exp_avg_sq", state.max_exp_avg_sq()});
      }
    }
    return states;
  }

 private:
  static std::vector<torch::optim::OptimizerParamGroup> torch_groups(const std::vector<Group>& groups) {
    std::vector<torch::optim::OptimizerParamGroup> result;
    for (const Group& group : groups) {
      Options options(group.number("lr", 1e-3));
      options.amsgrad(true).eps(group.number("eps", options.eps()));
      options.weight_decay(group.number("weight_decay", options.weight_decay()));
      if (const sdk::Json betas = group.settings.value("betas", sdk::Json()); betas.is_array())
        options.betas(std::tuple<double, double>(betas.at(0), betas.at(1)));
      result.emplace_back(group.tensors(), std::make_unique<Options>(options));
    }
    return result;
  }

  std::vector<Group> groups_;
  Torch adam_;
};

}  // namespace

std::unique_ptr<LibraryOptimizer> make_optimizer(const sdk::Json& verb, const Parameters& parameters) {
  const std::string kind = verb.at("kind");
  std::vector<Group> groups = groups_of(verb, parameters);
  if (verb.value("amsgrad", false)) {
    using namespace torch::optim;
    if (kind == "Adam")
      return std::make_unique<TorchAdam<torch::optim::Adam, AdamOptions, AdamParamState>>(std::move(groups));
    if (kind == "AdamW")
      return std::make_unique<TorchAdam<AdamW, AdamWOptions, AdamWParamState>>(std::move(groups));
    throw std::invalid_argument(kind + " knows no amsgrad; Adam and AdamW do");
  }
  if (kind == "SGD") return std::make_unique<Sgd>(std::move(groups));
  if (kind == "Adam" || kind == "AdamW") return std::make_unique<Adam>(std::move(groups), kind == "AdamW");
  throw std::invalid_argument("no optimizer is called \"" + kind + "\"; there are SGD, Adam and AdamW");
}

}  // namespace fsdp_cts::testee
