// FSDP2 as a testee: each operation of the suite in terms of the library's public headers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/fully_shard.hpp"
#include "impl/testee/library_operations.hpp"

namespace fsdp_cts::testee {

class FullyShardOperations : public LibraryOperations {
 public:
  using LibraryOperations::LibraryOperations;

  void end_case() override;

  void shard(sdk::Model& model) override;
  void materialize(sdk::Model& model) override;
  std::unique_ptr<sdk::Optimizer> make_optimizer(sdk::Model& model, const sdk::Json& verb) override;
  void control(sdk::Model& model, const sdk::Json& verb) override;
  void hook_gradient(sdk::Model& model, const std::string& name,
                     std::function<void(at::Tensor)> hook) override;
  at::Tensor clip_grad_norm(sdk::Model& model, double max_norm, double norm_type) override;

  void replace(sdk::Model& model, const std::string& name, at::Tensor tensor) override;

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

  std::vector<sdk::Unit> units(sdk::Model& model) override;
  std::map<std::string, std::int64_t> counters(sdk::Model& model) override;
  std::string training_state(sdk::Model& model) override;

 protected:
  fsdp::ShardedStateDict shards(sdk::Model& model) override;

 private:
  std::shared_ptr<c10::Event> recorded_now();
  std::function<void(at::Tensor)> all_reduce_hook(const sdk::Model& model, const sdk::Json& verb);

  std::map<std::string, fsdp::UnshardHandle> unshards_;  // begun in this case, by instance and module path
};

}  // namespace fsdp_cts::testee
