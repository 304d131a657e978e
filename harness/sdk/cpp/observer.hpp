// Turns what an `observe` step asks for into entries and tensors: PROTOCOL.md §5.
#pragma once

#include "harness/sdk/cpp/interpreter.hpp"

namespace fsdp_cts::sdk {

class Observer {
 public:
  Observer(Interpreter& interpreter, Observation& into)
      : in_(interpreter), operations_(interpreter.operations_), out_(into) {}

  // Throws std::invalid_argument for something that cannot be observed.
  void observe(const Json& step);

 private:
  void one(const std::string& what, const Json& step);
  void add_register(const std::string& what, const std::string& name);
  void add_items(const std::string& what, const std::string& instance, const std::vector<Exposed>& items);
  void add_values(const std::string& what, const Model* model, Json values);
  std::vector<Exposed> parameters(Model& model, bool gradients);
  std::vector<Exposed> optimizer_state(Model& model);
  Json units(Model& model);

  Interpreter& in_;
  Operations& operations_;
  Observation& out_;
};

}  // namespace fsdp_cts::sdk
