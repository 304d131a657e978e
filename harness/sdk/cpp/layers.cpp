// Layers that are one ATen call. Each reads its parameters from its own dictionary at every forward.
#include <ATen/ATen.h>

#include "harness/sdk/cpp/parameter_source.hpp"

namespace fsdp_cts::sdk {
namespace {

class Linear : public Module {
 public:
  Linear(const Json& d, const std::string& path, const ParameterSource& source)
      : Module("Linear", d.at("class")), has_bias_(d.value("bias", true)) {
    const std::int64_t in = d.at("in"), out = d.at("out");
    declare_parameter("weight", source.parameter(join_path(path, "weight"), {out, in}));
    if (has_bias_) declare_parameter("bias", source.parameter(join_path(path, "bias"), {out}));
  }

 private:
  Tensors body(Tensors inputs) override {
    return {at::linear(inputs.at(0), parameter("weight"), has_bias_ ? parameter("bias") : at::Tensor())};
  }
  bool has_bias_;
};

class Conv2d : public Module {
 public:
  Conv2d(const Json& d, const std::string& path, const ParameterSource& source)
      : Module("Conv2d", d.at("class")) {
    const std::int64_t in = d.at("in"), out = d.at("out"), kernel = d.at("kernel");
    declare_parameter("weight", source.parameter(join_path(path, "weight"), {out, in, kernel, kernel}));
    declare_parameter("bias", source.parameter(join_path(path, "bias"), {out}));
  }

 private:
  Tensors body(Tensors inputs) override {
    return {at::conv2d(inputs.at(0), parameter("weight"), parameter("bias"))};
  }
};

class Embedding : public Module {
 public:
  Embedding(const Json& d, const std::string& path, const ParameterSource& source)
      : Module("Embedding", d.at("class")) {
    declare_parameter("weight", source.parameter(join_path(path, "weight"), {d.at("num"), d.at("dim")}));
  }

 private:
  Tensors body(Tensors inputs) override { return {at::embedding(parameter("weight"), inputs.at(0))}; }
};

class LayerNorm : public Module {
 public:
  LayerNorm(const Json& d, const std::string& path, const ParameterSource& source)
      : Module("LayerNorm", d.at("class")), dim_(d.at("dim")) {
    declare_parameter("weight", source.parameter(join_path(path, "weight"), {dim_}));
    declare_parameter("bias", source.parameter(join_path(path, "bias"), {dim_}));
  }

 private:
  Tensors body(Tensors inputs) override {
    return {at::layer_norm(inputs.at(0), {dim_}, parameter("weight"), parameter("bias"))};
  }
  std::int64_t dim_;
};

class Relu : public Module {
 public:
  explicit Relu(const Json& d) : Module("ReLU", d.at("class")) {}

 private:
  Tensors body(Tensors inputs) override { return {at::relu(inputs.at(0))}; }
};

class Identity : public Module {
 public:
  explicit Identity(const Json& d) : Module("Identity", d.at("class")) {}

 private:
  Tensors body(Tensors inputs) override { return {inputs.at(0)}; }
};

class Dropout : public Module {
 public:
  explicit Dropout(const Json& d) : Module("Dropout", d.at("class")), p_(d.value("p", 0.5)) {}

 private:
  Tensors body(Tensors inputs) override { return {at::dropout(inputs.at(0), p_, is_training())}; }
  double p_;
};

}  // namespace

std::shared_ptr<Module> build_layer(const Json& d, const std::string& path, const ParameterSource& source) {
  const std::string type = d.at("type");
  if (type == "Linear") return std::make_shared<Linear>(d, path, source);
  if (type == "Conv2d") return std::make_shared<Conv2d>(d, path, source);
  if (type == "Embedding") return std::make_shared<Embedding>(d, path, source);
  if (type == "LayerNorm") return std::make_shared<LayerNorm>(d, path, source);
  if (type == "ReLU") return std::make_shared<Relu>(d);
  if (type == "Identity") return std::make_shared<Identity>(d);
  if (type == "Dropout") return std::make_shared<Dropout>(d);
  return nullptr;
}

}  // namespace fsdp_cts::sdk
