// Runs one case on one rank: verbs become calls of Operations, answers become protocol entries.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/protocol/tensor.hpp"
#include "harness/sdk/cpp/operations.hpp"

namespace fsdp_cts::sdk {

// One `observe` step's, or one attempt's, answer. The tensors are what the entries name.
struct Observation {
  int step = 0;
  std::optional<int> iteration;
  std::string label;
  Json entries = Json::array();
  TensorMap tensors;
};

class Interpreter {
 public:
  // Attaches to `operations`, which outlives it.
  Interpreter(Operations& operations, Case a_case, Data data, int rank);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // The program's step `index`, if it is for this rank and not inside an attempt that has already failed.
  // Throws what the operation throws outside an attempt. Nothing is returned for steps that observe nothing.
  std::optional<Observation> run(int index);
  bool will_run(int index) const;

  // For an exception that `run` let out.
  ErrorReport describe(std::exception_ptr error) const;
  // An operation of this step went wrong after `run` returned (the oracle reduces when all ranks are done):
  // as if run had thrown.
  void fail(int index, std::exception_ptr error);
  bool is_well() const {
    return attempts_.empty() || attempts_.back().error.is_null();
  }  // not in an attempt that has failed

  Context& context() { return context_; }
  Model& model(const std::string& instance);  // throws std::invalid_argument if it was not built

 private:
  friend class Verbs;
  friend class Observer;
  struct Attempt {
    int begin = 0;  // index of its attempt_begin
    std::size_t open_scopes = 0;
    Json error = nullptr;
  };
  struct NamedOptimizer {
    std::string instance;
    std::unique_ptr<Optimizer> optimizer;
  };

  const Json& step(int index) const { return context_.a_case.program.at(static_cast<std::size_t>(index)); }
  Observation answer(int index) const;
  void interrupt(const std::string& path);

  Operations& operations_;
  Context context_;
  bool traced_ = false;                  // somebody must know where layers begin to compute
  std::vector<Json> meanwhile_;          // steps that wait for a layer
  std::map<int, int> attempt_begin_of_;  // index of an attempt_end -> index of its attempt_begin
  std::map<std::string, Model> models_;
  std::map<std::string, Tensors>& registers_ = context_.registers;
  std::map<std::string, NamedOptimizer> optimizers_;
  std::map<std::string, std::unique_ptr<Scaler>> scalers_;
  std::map<std::string, std::pair<std::string, StateDict>>
      state_dicts_;                            // name -> instance it is of, contents
  std::vector<std::function<void()>> scopes_;  // how to leave each open one
  int no_grad_depth_ = 0;
  std::chrono::milliseconds delay_after_loss_{0};
  std::map<std::string, std::int64_t> gradient_hooks_;  // calls of `step_in_backward`'s hooks, by instance
  std::vector<Attempt> attempts_;
};

}  // namespace fsdp_cts::sdk
