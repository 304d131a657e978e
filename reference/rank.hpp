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
  std::vector<sdk::Unit> tree;  // what `units` observes
};

class Rank : public sdk::Operations {
 public:
  sdk::Identity identity() const override;

  void shard(sdk::Model& model) override;
  sdk::Tensors forward(sdk::Model& model, sdk::Tensors inputs) override;
  // Autograd only; the simulation reduces when all ranks are done.
  void backward(const at::Tensor& loss) override;
  void control(sdk::Model& model, const sdk::Json& verb) override;
  std::vector<sdk::Unit> units(sdk::Model& model) override;
  void set_buffer(sdk::Model& model, const std::string& name, at::ScalarType dtype) override;

  std::map<std::string, ShardedModel>& sharded() { return sharded_; }

 private:
  std::map<std::string, ShardedModel> sharded_;  // by instance
};

}  // namespace fsdp_cts::reference
