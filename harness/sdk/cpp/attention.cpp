#include <ATen/ATen.h>

#include "harness/sdk/cpp/parameter_source.hpp"

namespace fsdp_cts::sdk {
namespace {

// Inputs [length, batch, dim]. Goes the way of PyTorch's module when nobody asks for attention weights, so
// that equal inputs give equal bits.
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(const Json& d, const std::string& path, ParameterSource& source)
      : Module("MultiheadAttention", d.at("class")),
        dim_(d.at("dim")),
        heads_(d.at("heads")),
        dropout_(d.value("dropout", 0.0)) {
    declare_parameter("in_proj_weight",
                      source.parameter(join_path(path, "in_proj_weight"), {3 * dim_, dim_}));
    declare_parameter("in_proj_bias", source.parameter(join_path(path, "in_proj_bias"), {3 * dim_}));
    const Json projection = {{"type", "Linear"}, {"class", "Linear"}, {"in", dim_}, {"out", dim_}};
    declare_child("out_proj", build_module(projection, join_path(path, "out_proj"), source));
  }

 private:
  Tensors body(Tensors inputs) override {
    TORCH_CHECK(inputs.size() == 3, "MultiheadAttention takes query, key and value, not ", inputs.size(),
                " inputs");
    const auto [query, key, value] = project(inputs[0], inputs[1], inputs[2]);
    const std::int64_t target = query.size(0), batch = query.size(1), head_dim = dim_ / heads_;
    const auto by_head = [&](const at::Tensor& t) {
      const std::int64_t length = t.size(0);
      return t.view({length, batch * heads_, head_dim})
          .transpose(0, 1)
          .view({batch, heads_, length, head_dim});
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(by_head(query), by_head(key), by_head(value),
                                                              {}, is_training() ? dropout_ : 0.0);
    const at::Tensor rows = mixed.permute({2, 0, 1, 3}).contiguous().view({batch * target, dim_});
    // The projection's own forward is not called, as in PyTorch: hooks on it see nothing.
    const Module& out = *child_modules().front().second;
    return {at::linear(rows, out.parameter("weight"), out.parameter("bias")).view({target, batch, dim_})};
  }

  // As few products as the inputs allow: one where all three are one tensor, two where key and value are.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> project(const at::Tensor& q, const at::Tensor& k,
                                                         const at::Tensor& v) const {
    const at::Tensor &weight = parameter("in_proj_weight"), &bias = parameter("in_proj_bias");
    if (k.is_same(v) && q.is_same(k)) {
      const at::Tensor all = unpacked(at::linear(q, weight, bias), 3);
      return {all[0], all[1], all[2]};
    }
    if (k.is_same(v)) {
      const Tensors w = weight.split_with_sizes({dim_, 2 * dim_}),
                    b = bias.split_with_sizes({dim_, 2 * dim_});
      const at::Tensor both = unpacked(at::linear(k, w[1], b[1]), 2);
      return {at::linear(q, w[0], b[0]), both[0], both[1]};
    }
    const Tensors w = weight.chunk(3), b = bias.chunk(3);
    return {at::linear(q, w[0], b[0]), at::linear(k, w[1], b[1]), at::linear(v, w[2], b[2])};
  }

  // [length, batch, count * dim] to [count, length, batch, dim].
  at::Tensor unpacked(const at::Tensor& projected, std::int64_t count) const {
    return projected.unflatten(-1, {count, dim_}).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous();
  }

  std::int64_t dim_, heads_;
  double dropout_;
};

}  // namespace

std::shared_ptr<Module> build_attention(const Json& d, const std::string& path, ParameterSource& source) {
  return d.at("type") == "MultiheadAttention" ? std::make_shared<MultiheadAttention>(d, path, source)
                                              : nullptr;
}

}  // namespace fsdp_cts::sdk
