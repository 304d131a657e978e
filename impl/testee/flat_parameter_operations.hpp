// FSDP1 as a testee, in both of its forms: each operation of the suite in terms of the library's public
// headers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "impl/testee/library_operations.hpp"

namespace fsdp_cts::testee {

class FlatParameterOperations : public LibraryOperations {
 public:
  using LibraryOperations::LibraryOperations;

  void end_case() override;

  void shard(sdk::Model& model) override;
  void materialize(sdk::Model& model) override;
  std::unique_ptr<sdk::Optimizer> make_optimizer(sdk::Model& model, const sdk::Json& verb) override;
  void control(sdk::Model& model, const sdk::Json& verb) override;
  std::function<void()> enter(sdk::Model& model, const sdk::Json& verb) override;
  at::Tensor clip_grad_norm(sdk::Model& model, double max_norm, double norm_type) override;
  void delay(std::chrono::milliseconds duration, const std::string& at) override;

  std::vector<sdk::Parameter> parameters(sdk::Model& model) override;
  std::vector<sdk::Exposed> full_parameters(sdk::Model& model) override;
  sdk::StateDict state_dict(sdk::Model& model, const std::string& kind) override;
  sdk::StateDict full_state_dict(sdk::Model& model, const sdk::FullStateDictOptions& options) override;
  void load_state_dict(sdk::Model& model, const sdk::StateDict& state) override;
  sdk::StateDict optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                      const std::string& kind) override;
  void load_optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                 const sdk::StateDict& state) override;
  void zero_parameters(sdk::Model& model) override;
  // Without original parameters the flat one that holds them is all that a user can freeze.
  void set_requires_grad(sdk::Model& model, const std::string& name, bool value) override;
  // What is not exposed can still be written to in place, where it lies in the flat parameter.
  at::Tensor exposed(sdk::Model& model, const std::string& name) override;

  std::vector<sdk::Unit> units(sdk::Model& model) override;
  std::map<std::string, std::int64_t> counters(sdk::Model& model) override;
  std::string training_state(sdk::Model& model) override;

 protected:
  fsdp::ShardedStateDict shards(sdk::Model& model) override;

 private:
  void delay_free_of(sdk::Module& module);

  // Before a unit frees its parameters in forward. Shared with hooks of models.
  std::shared_ptr<std::chrono::milliseconds> before_free_ = std::make_shared<std::chrono::milliseconds>(0);
};

}  // namespace fsdp_cts::testee
