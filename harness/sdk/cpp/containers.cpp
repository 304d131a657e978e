#include <c10/util/Exception.h>

#include "harness/sdk/cpp/parameter_source.hpp"

namespace fsdp_cts::sdk {
namespace {

class Sequential : public Module {
 public:
  explicit Sequential(const Json& d) : Module("Sequential", d.at("class")) {}

 private:
  Tensors body(Tensors inputs) override {
    for (const auto& [name, child] : child_modules()) inputs = child->forward(std::move(inputs));
    return inputs;
  }
};

// ModuleList and ModuleDict only hold modules.
class Holder : public Module {
 public:
  explicit Holder(const Json& d) : Module(d.at("type"), d.at("class")) {}

 private:
  Tensors body(Tensors) override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "Module [", class_name(),
                                "] is missing the required \"forward\" function");
  }
};

}  // namespace

std::shared_ptr<Module> build_container(const Json& d) {
  const std::string type = d.at("type");
  if (type == "Sequential") return std::make_shared<Sequential>(d);
  if (type == "ModuleList" || type == "ModuleDict") return std::make_shared<Holder>(d);
  return nullptr;
}

}  // namespace fsdp_cts::sdk
