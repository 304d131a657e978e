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

constexpr std::int64_t width = 384, layers = 6, heads = 6, vocabulary = 2048, sequence = 128,
                       batch = 2;  // of the decoder

FSDP_HOOKED_MODULE(HookedLinear, torch::nn::LinearImpl);

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

class BlockImpl : public torch::nn::Module {
 public:
  at::Tensor forward(at::Tensor x) {
    std::vector<at::Tensor> parts = qkv->forward(norm1->forward(x)).chunk(3, -1);
    for (at::Tensor& part : parts) part = part.view({batch, sequence, heads, -1}).transpose(1, 2);
    const at::Tensor attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + projection->forward(attended.transpose(1, 2).reshape(x.sizes()));
    return x + down->forward(at::gelu(up->forward(norm2->forward(x))));
  }

 private:
  torch::nn::LayerNorm norm1 =
      register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  torch::nn::Linear qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
  torch::nn::Linear projection = register_module("projection", torch::nn::Linear(width, width));
  torch::nn::LayerNorm norm2 =
      register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(width, 4 * width));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(4 * width, width));
};
FSDP_HOOKED_MODULE(Block, BlockImpl);

class DecoderImpl : public torch::nn::Module {
 public:
  DecoderImpl() {
    for (std::int64_t i = 0; i < layers; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i), Block()));
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    head_ =
        register_module("head", torch::nn::Linear(torch::nn::LinearOptions(width, vocabulary).bias(false)));
  }
  at::Tensor forward(at::Tensor ids) {
    at::Tensor x = tokens_->forward(ids) + positions_->forward(at::arange(sequence));
    for (Block& block : blocks_) x = block(x);
    return head_->forward(norm_->forward(x));
  }
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  torch::nn::Embedding tokens_ = register_module("tokens", torch::nn::Embedding(vocabulary, width));
  torch::nn::Embedding positions_ = register_module("positions", torch::nn::Embedding(sequence, width));
  std::vector<Block> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
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

at::Tensor token_ids(std::uint32_t stream) {
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
                        std::int64_t rows, int rank) {
  Stack stack(depth + root_layers, features, relu);
  fill(*stack);
  const at::Tensor input = uniform({rows, features}, 1000 + static_cast<std::uint32_t>(rank), 1.0);
  Workload work{stack.ptr(), stack->children(),
                [stack, input]() mutable { return stack(input).square().mean(); }};
  work.units.resize(static_cast<std::size_t>(depth));
  return work;
}

Workload decoder_workload(int rank) {
  Decoder decoder;
  fill(*decoder);
  const at::Tensor ids = token_ids(1000 + static_cast<std::uint32_t>(rank)),
                   targets = token_ids(2000 + static_cast<std::uint32_t>(rank));
  Workload work{decoder.ptr(), {}, [decoder, ids, targets]() mutable {
                  return torch::nn::functional::cross_entropy(decoder(ids).flatten(0, 1), targets.flatten());
                }};
  for (const Block& block : decoder->blocks()) work.units.push_back(block.ptr());
  return work;
}

}  // namespace

Workload make_workload(const std::string& name, int rank) {
  if (name == "tiny8") return stack_workload(8, 1, 16, false, 4, rank);
  if (name == "tiny64") return stack_workload(64, 1, 16, false, 4, rank);
  if (name == "mlp") return stack_workload(4, 0, 1024, true, 64, rank);
  if (name == "decoder") return decoder_workload(rank);
  throw std::invalid_argument("unknown model \"" + name + "\"; known: tiny8, tiny64, mlp, decoder");
}

}  // namespace fsdp_cts::bench
