#include "impl/bench/workload.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "fsdp/hooks.hpp"

namespace fsdp_cts::bench {
namespace {

struct DecoderShape {
  std::int64_t layers, width, heads, sequence;
};
constexpr std::int64_t vocabulary = 2048, batch = 2;  // of decoders

// As Python's nn.Linear: one operator. LibTorch's own adds the bias with a second.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight, bias); }
};
TORCH_MODULE(Linear);
FSDP_HOOKED_MODULE(HookedLinear, LinearImpl);

// Linear layers one after the other, with or without a ReLU behind each.
class StackImpl : public torch::nn::Module {
 public:
  StackImpl(std::int64_t depth, std::int64_t features, bool relu) : relu_(relu) {
    for (std::int64_t i = 0; i < depth; ++i) {
      layers_.push_back(
          register_module(std::to_string(i), HookedLinear(torch::nn::LinearOptions(features, features))));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (HookedLinear& layer : layers_) x = relu_ ? at::relu(layer(x)) : layer(x);
    return x;
  }

 private:
  bool relu_;
  std::vector<HookedLinear> layers_;
};
FSDP_HOOKED_MODULE(Stack, StackImpl);

torch::nn::LayerNorm norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const DecoderShape& shape)
      : heads_(shape.heads),
        norm1(register_module("norm1", norm(shape.width))),
        qkv(register_module("qkv", Linear(shape.width, 3 * shape.width))),
        projection(register_module("projection", Linear(shape.width, shape.width))),
        norm2(register_module("norm2", norm(shape.width))),
        up(register_module("up", Linear(shape.width, 4 * shape.width))),
        down(register_module("down", Linear(4 * shape.width, shape.width))) {}
  at::Tensor forward(at::Tensor x) {
    std::vector<at::Tensor> parts = qkv->forward(norm1->forward(x)).chunk(3, -1);
    for (at::Tensor& part : parts) part = part.view({x.size(0), x.size(1), heads_, -1}).transpose(1, 2);
    const at::Tensor attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + projection->forward(attended.transpose(1, 2).reshape(x.sizes()));
    return x + down->forward(at::gelu(up->forward(norm2->forward(x))));
  }

 private:
  std::int64_t heads_;
  torch::nn::LayerNorm norm1;
  Linear qkv, projection;
  torch::nn::LayerNorm norm2;
  Linear up, down;
};
FSDP_HOOKED_MODULE(Block, BlockImpl);

class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(const DecoderShape& shape)
      : tokens_(register_module("tokens", torch::nn::Embedding(vocabulary, shape.width))),
        positions_(register_module("positions", torch::nn::Embedding(shape.sequence, shape.width))) {
    for (std::int64_t i = 0; i < shape.layers; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i), Block(shape)));
    norm_ = register_module("norm", norm(shape.width));
    head_ = register_module("head", Linear(torch::nn::LinearOptions(shape.width, vocabulary).bias(false)));
  }
  at::Tensor forward(at::Tensor ids) {
    at::Tensor x = tokens_->forward(ids) + positions_->forward(at::arange(ids.size(1), ids.options()));
    for (Block& block : blocks_) x = block(x);
    return head_->forward(norm_->forward(x));
  }
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  torch::nn::Embedding tokens_, positions_;
  std::vector<Block> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  Linear head_{nullptr};
};
FSDP_HOOKED_MODULE(Decoder, DecoderImpl);

std::uint32_t hashed(std::uint32_t i, std::uint32_t stream) {
  std::uint32_t x = i * 0x9E3779B9u + stream * 0x85EBCA6Bu;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

at::Tensor uniform(at::IntArrayRef shape, std::uint32_t stream, double scale) {
  at::Tensor result = at::empty(shape, at::kFloat);
  float* values = result.data_ptr<float>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    values[i] =
        static_cast<float>((hashed(static_cast<std::uint32_t>(i), stream) / 2147483648.0 - 1.0) * scale);
  }
  return result;
}

at::Tensor token_ids(std::int64_t sequence, std::uint32_t stream) {
  at::Tensor ids = at::empty({batch, sequence}, at::kLong);
  for (std::int64_t i = 0; i < ids.numel(); ++i)
    ids.data_ptr<std::int64_t>()[i] = hashed(static_cast<std::uint32_t>(i), stream) % vocabulary;
  return ids;
}

// Matrices keep the variance of their input; vectors keep the constants their layers start with, except
// linear biases.
void fill(torch::nn::Module& model) {
  c10::AutoGradMode no_grad(false);
  std::uint32_t stream = 0;
  for (auto& parameter : model.named_parameters()) {
    const at::Tensor& value = parameter.value();
    if (value.dim() > 1) {
      value.copy_(uniform(value.sizes(), stream, std::sqrt(3.0 / static_cast<double>(value.size(1)))));
    } else if (parameter.key().find("norm") == std::string::npos) {
      value.copy_(uniform(value.sizes(), stream, 0.1));
    }
    ++stream;
  }
}

Workload stack_workload(std::int64_t depth, std::int64_t root_layers, std::int64_t features, bool relu,
                        std::int64_t rows, int rank, c10::Device device) {
  Stack stack(depth + root_layers, features, relu);
  fill(*stack);
  stack->to(device);
  const at::Tensor input = uniform({rows, features}, 1000 + static_cast<std::uint32_t>(rank), 1.0).to(device);
  Workload work{stack.ptr(), stack->children(),
                [stack, input]() mutable { return stack(input).square().mean(); }};
  work.units.resize(static_cast<std::size_t>(depth));
  return work;
}

Workload decoder_workload(const DecoderShape& shape, int rank, c10::Device device) {
  Decoder decoder(shape);
  fill(*decoder);
  decoder->to(device);
  const at::Tensor ids = token_ids(shape.sequence, 1000 + static_cast<std::uint32_t>(rank)).to(device),
                   targets = token_ids(shape.sequence, 2000 + static_cast<std::uint32_t>(rank)).to(device);
  Workload work{decoder.ptr(), {}, [decoder, ids, targets]() mutable {
                  return torch::nn::functional::cross_entropy(decoder(ids).flatten(0, 1), targets.flatten());
                }};
  for (const Block& block : decoder->blocks()) work.units.push_back(block.ptr());
  return work;
}

}  // namespace

Workload make_workload(const std::string& name, int rank, c10::Device device) {
  if (name == "tiny8") return stack_workload(8, 1, 16, false, 4, rank, device);
  if (name == "tiny64") return stack_workload(64, 1, 16, false, 4, rank, device);
  if (name == "mlp") return stack_workload(4, 0, 1024, true, 64, rank, device);
  if (name == "decoder") return decoder_workload({6, 384, 6, 128}, rank, device);
  if (name == "decoder8") return decoder_workload({8, 768, 12, 256}, rank, device);
  throw std::invalid_argument("unknown model \"" + name + "\"; known: tiny8, tiny64, mlp, decoder, decoder8");
}

}  // namespace fsdp_cts::bench
