#include "harness/sdk/cpp/optimizer.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <stdexcept>

#include "harness/protocol/pattern.hpp"

namespace fsdp_cts::sdk {
namespace {

struct Settings {
  double lr, momentum, beta1, beta2, eps, weight_decay;
};

// Absent and null keys keep what `base` says.
Settings merge(Settings base, const Json& over) {
  const auto set = [&over](const char* key, double& value) {
    if (over.contains(key) && !over.at(key).is_null()) value = over.at(key);
  };
  set("lr", base.lr);
  set("momentum", base.momentum);
  set("eps", base.eps);
  set("weight_decay", base.weight_decay);
  if (over.contains("betas") && !over.at("betas").is_null()) {
    base.beta1 = over.at("betas").at(0);
    base.beta2 = over.at("betas").at(1);
  }
  return base;
}

struct Entry {
  std::string name;
  at::Tensor parameter;
  Settings settings;
  double steps = 0;
  at::Tensor first = {}, second = {};  // momentum buffer, or both moments; made at the first step
  at::Tensor largest = {};             // amsgrad: of the second moment, so far
};

struct Saved {
  std::string parameter;
  double steps;
  at::Tensor first, second, largest;
};

at::Tensor copied(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.clone() : tensor;
}

class OptimizerBase : public Optimizer {
 public:
  explicit OptimizerBase(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  void step() override {
    c10::AutoGradMode no_grad(false);
    for (Entry& entry : entries_) {
      const at::Tensor gradient = entry.parameter.grad();
      if (gradient.defined()) update(entry, gradient);
    }
  }

  void zero_grad(bool set_to_none) override {
    for (Entry& entry : entries_) {
      at::Tensor& gradient = entry.parameter.mutable_grad();
      if (!gradient.defined()) continue;
      if (set_to_none) {
        gradient.reset();
      } else {
        gradient.detach_().zero_();
      }
    }
  }

  std::vector<at::Tensor> tensors() const override {
    std::vector<at::Tensor> all;
    for (const Entry& entry : entries_) all.push_back(entry.parameter);
    return all;
  }

  std::any saved() const override {
    std::vector<Saved> all;
    for (const Entry& entry : entries_)
      all.push_back(
          {entry.name, entry.steps, copied(entry.first), copied(entry.second), copied(entry.largest)});
    return all;
  }

  void load(const std::any& saved) override {
    for (const Saved& one : std::any_cast<const std::vector<Saved>&>(saved)) {
      for (Entry& entry : entries_) {
        if (entry.name != one.parameter) continue;
        entry.steps = one.steps;
        entry.first = copied(one.first);
        entry.second = copied(one.second);
        entry.largest = copied(one.largest);
      }
    }
  }

 protected:
  virtual void update(Entry& entry, at::Tensor gradient) = 0;
  std::vector<Entry> entries_;
};

class Sgd : public OptimizerBase {
 public:
  using OptimizerBase::OptimizerBase;

  std::vector<State> state() const override {
    std::vector<State> states;
    for (const Entry& entry : entries_) {
      if (entry.first.defined()) states.push_back({entry.name, "momentum_buffer", entry.first});
    }
    return states;
  }

 private:
  void update(Entry& entry, at::Tensor gradient) override {
    const Settings& s = entry.settings;
    if (s.weight_decay != 0) gradient = gradient.add(entry.parameter, s.weight_decay);
    if (s.momentum != 0) {
      if (entry.first.defined()) {
        entry.first.mul_(s.momentum).add_(gradient);
      } else {
        entry.first = gradient.detach().clone();
      }
      gradient = entry.first;
    }
    entry.parameter.add_(gradient, -s.lr);
  }
};

class Adam : public OptimizerBase {
 public:
  Adam(std::vector<Entry> entries, bool decoupled_weight_decay, bool amsgrad)
      : OptimizerBase(std::move(entries)),
        decoupled_weight_decay_(decoupled_weight_decay),
        amsgrad_(amsgrad) {}

  std::vector<State> state() const override {
    std::vector<State> states;
    for (const Entry& entry : entries_) {
      if (!entry.first.defined()) continue;
      states.push_back({entry.name, "exp_avg", entry.first});
      states.push_back({entry.name, "exp_avg_sq", entry.second});
      if (entry.largest.defined()) states.push_back({entry.name, "max_exp_avg_sq", entry.largest});
    }
    return states;
  }

 private:
  void update(Entry& entry, at::Tensor gradient) override {
    const Settings& s = entry.settings;
    const at::Tensor& parameter = entry.parameter;
    if (!entry.first.defined()) {
      entry.first = at::zeros_like(parameter.detach());
      entry.second = at::zeros_like(parameter.detach());
      if (amsgrad_) entry.largest = at::zeros_like(parameter.detach());
    }
    entry.steps += 1;
    if (s.weight_decay != 0) {
      if (decoupled_weight_decay_) {
        parameter.mul_(1 - s.lr * s.weight_decay);
      } else {
        gradient = gradient.add(parameter, s.weight_decay);
      }
    }
    entry.first.lerp_(gradient, 1 - s.beta1);
    entry.second.mul_(s.beta2).addcmul_(gradient, gradient, 1 - s.beta2);
    const double correction1 = 1 - std::pow(s.beta1, entry.steps);
    const double correction2 = 1 - std::pow(s.beta2, entry.steps);
    if (amsgrad_) entry.largest = at::maximum(entry.largest, entry.second);
    const at::Tensor& second = amsgrad_ ? entry.largest : entry.second;
    const at::Tensor denominator = second.sqrt().div_(std::sqrt(correction2)).add_(s.eps);
    parameter.addcdiv_(entry.first, denominator, -(s.lr / correction1));
  }

  bool decoupled_weight_decay_, amsgrad_;
};

std::vector<Entry> select(const Json& verb, const Settings& base,
                          const std::vector<OptimizerParameter>& parameters) {
  const Json pattern = verb.value("match", Json());
  const Pattern match(pattern.is_null() ? ".*" : pattern.get<std::string>());
  const Json groups = verb.value("groups", Json());
  std::vector<Entry> entries;
  for (const OptimizerParameter& parameter : parameters) {
    if (!match.found_in(parameter.name)) continue;
    if (!groups.is_array()) {
      entries.push_back({parameter.name, parameter.tensor, base});
      continue;
    }
    for (const Json& group : groups) {
      if (!Pattern(group.at("match").get<std::string>()).found_in(parameter.name)) continue;
      entries.push_back({parameter.name, parameter.tensor, merge(base, group)});
      break;
    }
  }
  return entries;
}

}  // namespace

std::vector<at::Tensor> Optimizer::tensors() const {
  throw std::logic_error("this optimizer does not say what it updates");
}

std::any Optimizer::saved() const {
  throw std::logic_error("this optimizer's state cannot be taken out as a whole");
}

void Optimizer::load(const std::any&) {
  throw std::logic_error("this optimizer's state cannot be put in as a whole");
}

std::unique_ptr<Optimizer> make_optimizer(const Json& verb,
                                          const std::vector<OptimizerParameter>& parameters) {
  const std::string kind = verb.at("kind");
  const bool adamw = kind == "AdamW";
  const Settings defaults{1e-3, 0, 0.9, 0.999, 1e-8, adamw ? 1e-2 : 0.0};
  std::vector<Entry> entries = select(verb, merge(defaults, verb), parameters);
  const bool amsgrad = verb.value("amsgrad", false);
  if (kind == "SGD" && amsgrad) throw std::invalid_argument("SGD knows no amsgrad; Adam and AdamW do");
  if (kind == "SGD") return std::make_unique<Sgd>(std::move(entries));
  if (kind == "Adam" || adamw) return std::make_unique<Adam>(std::move(entries), adamw, amsgrad);
  throw std::invalid_argument("no optimizer is called \"" + kind + "\"; there are SGD, Adam and AdamW");
}

}  // namespace fsdp_cts::sdk
