#include <ATen/ATen.h>

#include <cmath>

#include "harness/sdk/cpp/parameter_source.hpp"

namespace fsdp_cts::sdk {
namespace {

// Inputs [length, batch, dim]. Scales the query, then softmax(q k^T) v per head, in the order in which PyTorch's module does
// when it also computes attention weights.
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(const Json& d, const std::string& path, ParameterSource& source)
      : Module("MultiheadAttention", d.at("class")),
        dim_(d.at("dim")),
        heads_(d.at("heads")),
        dropout_(d.value("dropout", 0.0)) {
    declare_parameter("in_proj_weight", source.parameter(join_path(path, "in_proj_weight"), {3 * dim_, dim_}));
    declare_parameter("in_proj_bias", source.parameter(join_path(path, "in_proj_bias"), {3 * dim_}));
    const Json projection = {{"type", "Linear"}, {"class", "Linear"}, {"in", dim_}, {"out", dim_}};
    declare_child("out_proj", build_module(projection, join_path(path, "out_proj"), source));
  }

 private:
  Tensors body(Tensors inputs) override {
    TORCH_CHECK(inputs.size() == 3, "MultiheadAttention takes query, key and value, not ", inputs.size(), " inputs");
    const auto [query, key, value] = project(inputs[0], inputs[1], inputs[2]);
    const std::int64_t target = query.size(0), batch = query.size(1), head_dim = dim_ / heads_;
    const auto by_head = [&](const at::Tensor& t) {
      return t.contiguous().view({t.size(0), batch * heads_, head_dim}).transpose(0, 1);
    };
    const at::Tensor scaled = by_head(query) * std::sqrt(1.0 / static_cast<double>(head_dim));
    at::Tensor weights = at::softmax(at::bmm(scaled, by_head(key).transpose(-2, -1)), -1);
    if (dropout_ > 0) weights = at::dropout(weights, dropout_, is_training());
    const at::Tensor mixed = at::bmm(weights, by_head(value)).transpose(0, 1).contiguous().view({target * batch, dim_});
    // The projection's own forward is not called, as in PyTorch: hooks on it see nothing.
    const Module& out = *child_modules().front().second;
    return {at::linear(mixed, out.parameter("weight"), out.parameter("bias")).view({target, batch, dim_})};
  }

  // One product where the inputs are one tensor, as few as possible otherwise.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> project(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    const at::Tensor &weight = parameter("in_proj_weight"), &bias = parameter("in_proj_bias");
    if (k.is_same(v) && q.is_same(k)) {
      const Tensors parts = at::linear(q, weight, bias).chunk(3, -1);
      return {parts[0], parts[1], parts[2]};
    }
    const Tensors w = weight.chunk(3), b = bias.chunk(3);
    return {at::linear(q, w[0], b[0]), at::linear(k, w[1], b[1]), at::linear(v, w[2], b[2])};
  }

  std::int64_t dim_, heads_;
  double dropout_;
};

}  // namespace

std::shared_ptr<Module> build_attention(const Json& d, const std::string& path, ParameterSource& source) {
  return d.at("type") == "MultiheadAttention" ? std::make_shared<MultiheadAttention>(d, path, source) : nullptr;
}

}  // namespace fsdp_cts::sdk
