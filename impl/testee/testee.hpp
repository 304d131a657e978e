// The C++ library as a testee: FSDP2, FSDP1 and FSDP1's composable form, by the API that the model's plan
// names.
#pragma once

#include "impl/testee/flat_parameter_operations.hpp"
#include "impl/testee/fully_shard_operations.hpp"

namespace fsdp_cts::testee {

class Testee : public LibraryOperations {
 public:
  explicit Testee(Settings settings);

  std::optional<std::string> unsupported(const sdk::Case& a_case) const override;
  void rendezvous(const sdk::Case& a_case) override;
  void end_case() override;
  void delay(std::chrono::milliseconds duration, const std::string& at) override;

  void shard(sdk::Model& model) override;
  void materialize(sdk::Model& model) override;
  std::unique_ptr<sdk::Optimizer> make_optimizer(sdk::Model& model, const sdk::Json& verb) override;
  void control(sdk::Model& model, const sdk::Json& verb) override;
  void hook_gradient(sdk::Model& model, const std::string& name,
                     std::function<void(at::Tensor)> hook) override;
  std::function<void()> enter(sdk::Model& model, const sdk::Json& verb) override;
  at::Tensor clip_grad_norm(sdk::Model& model, double max_norm, double norm_type) override;

  std::vector<sdk::Parameter> parameters(sdk::Model& model) override;
  std::vector<sdk::Exposed> full_parameters(sdk::Model& model) override;
  sdk::StateDict state_dict(sdk::Model& model, const std::string& kind) override;
  sdk::StateDict full_state_dict(sdk::Model& model, const sdk::FullStateDictOptions& options) override;
  void load_state_dict(sdk::Model& model, const sdk::StateDict& state) override;
  void broadcast_state_dict(sdk::Model& model, const sdk::StateDict& state) override;
  sdk::StateDict optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                      const std::string& kind) override;
  void load_optimizer_state_dict(sdk::Model& model, sdk::Optimizer& optimizer,
                                 const sdk::StateDict& state) override;
  void save_checkpoint(const sdk::Checkpoint& checkpoint) override;
  void load_checkpoint(const sdk::Checkpoint& checkpoint) override;
  void zero_parameters(sdk::Model& model) override;
  void set_requires_grad(sdk::Model& model, const std::string& name, bool value) override;
  at::Tensor exposed(sdk::Model& model, const std::string& name) override;
  void replace(sdk::Model& model, const std::string& name, at::Tensor tensor) override;

  std::vector<sdk::Unit> units(sdk::Model& model) override;
  std::map<std::string, std::int64_t> counters(sdk::Model& model) override;
  std::string training_state(sdk::Model& model) override;

 private:
  explicit Testee(std::shared_ptr<Library> library);
  sdk::Operations& of(const sdk::Model& model);

  FullyShardOperations fully_shard_;
  FlatParameterOperations flat_parameter_;
  LibraryOperations plain_;  // no plan: the SDK's defaults
};

}  // namespace fsdp_cts::testee
