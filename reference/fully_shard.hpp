// FSDP2's `fully_shard` on one simulated rank: which parameters form a group, what is cast, how gradients are
// reduced.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "reference/unit.hpp"

namespace fsdp_cts::reference {

using Json = nlohmann::ordered_json;

struct MixedPrecisionPolicy {
  std::optional<at::ScalarType> param_dtype, reduce_dtype, output_dtype;
  bool cast_forward_inputs = true;
  bool reduces_in_original_dtype = false;  // where reduce_dtype is not given, instead of the compute dtype
};
// `widen`: every named dtype is float64.
MixedPrecisionPolicy mixed_precision_policy(const Json& policy, bool widen);

struct Replicas {
  int count = 1;
  // On a mesh of two dimensions, be the first 1: all-reduces can be put off. Otherwise replicas know nothing
  // of each other, unless a hook of the user's makes them.
  bool native = false;
};

class FullyShardUnit : public Unit {
 public:
  FullyShardUnit(std::vector<std::pair<std::string, sdk::Module*>> modules,
                 std::vector<UnitParameter> parameters, std::vector<std::int64_t> shard_dims,
                 MixedPrecisionPolicy policy, Replicas replicas);

  void before_backward() override {}
  void abandon_backward() override;
  void reduce(const std::vector<Unit*>& peers, Order order) override;
  sdk::Unit describe() const override;
  // After a backward that does not reshard and has come to it, or where a forward has left it whole: the unit shows the gradients that wait
  // where autograd left them.
  bool stays_gathered() const { return stays_gathered_; }
  void free() { stays_gathered_ = false; }

  bool reduce_gradients = true;         // set_requires_gradient_sync
  bool all_reduce_gradients = true;     // set_requires_all_reduce
  bool reshards_after_backward = true;  // set_reshard_after_backward
  bool reshards_after_forward = true;   // the plan's, then set_reshard_after_forward
  std::optional<double> divide_factor;
  bool sums_only = false;  // set_force_sum_reduction_for_comms
  struct AllReduceHook {
    double scale = 1, add = 0;
    bool mean_over_replicas = false;
  };
  std::optional<AllReduceHook> all_reduce_hook;

 protected:
  at::ScalarType compute_dtype(const UnitParameter& parameter) const override;
  sdk::Tensors before_forward(sdk::Tensors inputs) override;
  sdk::Tensors after_forward(sdk::Tensors outputs) override;
  void watch(const sdk::Tensors& outputs) override;

 private:
  std::optional<at::ScalarType> reduce_dtype() const;  // nothing: the gradient's own, as autograd left it
  void collect_gradients();
  at::Tensor flat_gradient(const std::vector<std::size_t>& used, std::int64_t shards) const;
  void accept_gradients(const std::vector<std::size_t>& used, const at::Tensor& flat, std::int64_t shards);

  std::vector<std::int64_t> shard_dims_;  // of each parameter; 0 unless the plan says otherwise
  MixedPrecisionPolicy policy_;
  Replicas replicas_;
  std::vector<at::Tensor> unreduced_;  // each parameter's gradient that waits for a reduction
  at::Tensor partial_;                 // reduce-scattered, waiting for an all-reduce
  bool ran_ = false;                   // in a forward since the last backward
  bool reached_ = false;  // by a backward since that forward, through an output of any of its modules
  bool stays_gathered_ = false;
};

// The units of a plan, in its order.
std::vector<std::unique_ptr<Unit>> fully_shard_units(sdk::Module& root, const Json& plan, bool widen,
                                                     bool reduces_in_original_dtype);

}  // namespace fsdp_cts::reference
