// One simulated rank: a whole model, with the units of its plan put in between.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/sdk/cpp/operations.hpp"
#include "reference/unit.hpp"

namespace fsdp_cts::reference {

// A model that has a plan applied.
struct ShardedModel {
  std::shared_ptr<sdk::Module> root;
  std::vector<std::unique_ptr<Unit>> units;
};

class Rank : public sdk::Operations {
 public:
  sdk::Identity identity() const override;

  void shard(sdk::Model& model) override;
  void materialize(sdk::Model& model) override;
  void cast(sdk::Model& model, at::ScalarType dtype, const std::string& match) override;
  sdk::Tensors forward(sdk::Model& model, const std::string& module, sdk::Tensors inputs) override;
  // Autograd only; the simulation reduces when all ranks are done.
  void backward(const at::Tensor& loss, bool create_graph) override;
  void control(sdk::Model& model, const sdk::Json& verb) override;
  std::function<void()> enter(sdk::Model& model, const sdk::Json& verb) override;
  std::vector<sdk::Parameter> parameters(sdk::Model& model) override;
  std::vector<sdk::Exposed> full_parameters(sdk::Model& model) override;
  sdk::StateDict state_dict(sdk::Model& model, const std::string& kind) override;
  sdk::StateDict full_state_dict(sdk::Model& model, const sdk::FullStateDictOptions& options) override;
  void broadcast_state_dict(sdk::Model& model, const sdk::StateDict& state) override;
  void save_checkpoint(const sdk::Checkpoint&) override {}
  // Takes the state from the model that has it by now: what is judged is the testee's file, not one of ours.
  void load_checkpoint(const sdk::Checkpoint& checkpoint) override;
  void zero_parameters(sdk::Model& model) override;
  std::vector<sdk::Unit> units(sdk::Model& model) override;  // in module order
  void set_buffer(sdk::Model& model, const std::string& name, at::ScalarType dtype) override;

  std::map<std::string, ShardedModel>& sharded() { return sharded_; }

 private:
  std::vector<Unit*> units_of(const sdk::Model& model) const;
  std::function<void()> undo_changes(const sdk::Model& model);  // made now, to be called later
  void summon(const sdk::Model& model);                         // what FSDP does before it gathers everything

  std::map<std::string, ShardedModel> sharded_;  // by instance
};

}  // namespace fsdp_cts::reference
