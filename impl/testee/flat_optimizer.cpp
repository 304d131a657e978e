#include "impl/testee/flat_optimizer.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "fsdp/flat/inspection.hpp"
#include "impl/testee/optimizers.hpp"

namespace fsdp_cts::testee {
namespace {

using Originals = std::vector<fsdp::flat::OriginalParameter>;

class FlatOptimizer : public LibraryOptimizer {
 public:
  FlatOptimizer(const sdk::Json& verb, std::shared_ptr<torch::nn::Module> model)
      : model_(std::move(model)), optimizer_(testee::make_optimizer(verb, updated())) {}

  void step() override { optimizer_->step(); }
  void zero_grad(bool set_to_none) override { optimizer_->zero_grad(set_to_none); }
  std::vector<at::Tensor> tensors() const override { return optimizer_->tensors(); }
  fsdp::OptimizerState library_state() const override { return optimizer_->library_state(); }
  void load_library_state(const fsdp::OptimizerState& state) override {
    optimizer_->load_library_state(state);
  }

  std::vector<State> state() const override {
    std::vector<State> states;
    const Originals originals = fsdp::flat::named_original_parameters(*model_);
    for (const State& of_updated : optimizer_->state()) {
      const at::Tensor tensor = tensor_named(of_updated.parameter);
      for (const auto& original : originals) {
        if (!original.updated.is_same(tensor)) continue;
        const at::Tensor& value = of_updated.value;
        const bool part = original.managed && !original.use_orig_params;
        states.push_back({original.name, of_updated.name, part ? part_of(value, original) : value});
      }
    }
    return states;
  }

 private:
  static at::Tensor part_of(const at::Tensor& state, const fsdp::flat::OriginalParameter& original) {
    const at::Tensor part = state.narrow(0, original.state_offset, original.shard_piece.length);
    return original.shard_piece.whole ? part.view(original.shard_piece.shape) : part;
  }

  at::Tensor tensor_named(const std::string& name) const {
    const auto found = std::find_if(updated_.begin(), updated_.end(),
                                    [&](const sdk::OptimizerParameter& one) { return one.name == name; });
    return found->tensor;
  }

  const std::vector<sdk::OptimizerParameter>& updated() {
    for (const auto& original : fsdp::flat::named_original_parameters(*model_)) {
      const bool known = std::any_of(
          updated_.begin(), updated_.end(),
          [&](const sdk::OptimizerParameter& one) { return one.tensor.is_same(original.updated); });
      if (!known) updated_.push_back({original.name, original.updated});
    }
    return updated_;
  }

  std::shared_ptr<torch::nn::Module> model_;
  std::vector<sdk::OptimizerParameter> updated_;
  std::unique_ptr<LibraryOptimizer> optimizer_;
};

}  // namespace

std::unique_ptr<sdk::Optimizer> make_flat_optimizer(const sdk::Json& verb,
                                                    const std::shared_ptr<torch::nn::Module>& model) {
  return std::make_unique<FlatOptimizer>(verb, model);
}

}  // namespace fsdp_cts::testee
