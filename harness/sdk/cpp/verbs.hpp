// What each verb of LANGUAGE.md §6 does, except attempts and `observe`.
#pragma once

#include "harness/sdk/cpp/interpreter.hpp"

namespace fsdp_cts::sdk {

class Verbs {
 public:
  explicit Verbs(Interpreter& interpreter) : in_(interpreter), operations_(interpreter.operations_) {}

  // Throws std::invalid_argument for an unknown verb, and whatever the operation throws.
  void act(const Json& step);

 private:
  void build(const Json& step);
  void optimizer(const Json& step);
  void zero_grad(const Json& step);
  void forward(const Json& step);
  void loss(const Json& step);
  void take_gradient(const Json& step);
  void step_in_backward(const Json& step);
  void foreach_mul(const Json& step);
  void mutate(const Json& step);
  void enter(const Json& step);
  void leave(const Json& step);
  void state_dict(const Json& step);
  void load_state_dict(const Json& step);
  void optimizer_state_dict(const Json& step);
  void load_optimizer_state_dict(const Json& step);
  Checkpoint checkpoint(const Json& step, const std::filesystem::path& folder);
  void delay(const Json& step);

  Model& model(const Json& step) { return in_.model(step.value("model", "model")); }
  // Of the step's model what `module` names, as a model of its own.
  Model part(const Json& step);
  Scaler& scaler(const Json& step) { return *in_.scalers_.at(step.value("scaler", "scaler")); }
  Tensors value(const std::string& name);  // of the data file, else of a register
  at::Tensor one(const std::string& name);
  at::Tensor replacement(const Json& step, const at::Tensor& like);

  Interpreter& in_;
  Operations& operations_;
};

}  // namespace fsdp_cts::sdk
