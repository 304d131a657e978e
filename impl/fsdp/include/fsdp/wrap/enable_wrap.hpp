#pragma once
// Wrapping where a model is put together, with one set of options for all of it:
//
//   EnableWrap context({.sharding_strategy = ShardingStrategy::shard_grad_op});
//   layer = register_module("layer", wrap(Linear(5, 5)));       // a unit
//   ...                                                         // the same code without context: plain
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "fsdp/flat/options.hpp"
#include "fsdp/wrap/policies.hpp"

namespace fsdp::flat {

/// As long as it lives, `wrap` wraps with these options. Throws NotImplemented inside another one.
class EnableWrap {
 public:
  explicit EnableWrap(FSDPOptions options);
  EnableWrap(const EnableWrap&) = delete;
  EnableWrap& operator=(const EnableWrap&) = delete;
  ~EnableWrap();
};

/// Inside an EnableWrap: makes the module a unit with the context's options, changed by `explicit_options`.
/// Outside: nothing. Throws what the constructor of FullyShardedDataParallel throws.
void wrap_module(const std::shared_ptr<torch::nn::Module>& module, const OptionsOverride& explicit_options);

/// The same, and gives the module back.
template <class M>
std::shared_ptr<M> wrap(std::shared_ptr<M> module, const OptionsOverride& explicit_options = nullptr) {
  wrap_module(module, explicit_options);
  return module;
}
template <class Holder>
requires requires(Holder holder) {
  holder.ptr();
}
Holder wrap(Holder holder, const OptionsOverride& explicit_options = nullptr) {
  wrap_module(holder.ptr(), explicit_options);
  return holder;
}

}  // namespace fsdp::flat
