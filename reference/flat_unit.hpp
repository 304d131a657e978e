// One FSDP1 instance on one simulated rank: casts, writeback rules, reduction of its flat gradient.
#pragma once

#include "reference/flat_layout.hpp"
#include "reference/flat_settings.hpp"
#include "reference/unit.hpp"

namespace fsdp_cts::reference {

class FlatUnit : public Unit {
 public:
  FlatUnit(std::string path, sdk::Module& module, std::vector<UnitParameter> parameters,
           FlatSettings settings);

  void before_backward() override;
  void reduce(const std::vector<Unit*>& peers, Order order) override;
  sdk::Unit describe() const override;

  // What FSDP does before it gathers: takes over what user code put in place of a parameter. Throws what it
  // throws for a wrong shape, or for a change while parameters were left unsharded between forward and
  // backward. Both are local to the ranks whose shard holds a part of that parameter.
  void write_back();

  // After a summon with writeback: of what a rank wrote into whole parameters, its own shard counts, on every
  // rank. `peers` are the same unit on every rank.
  void exchange_shards(const std::vector<Unit*>& peers);

  // With sync_module_states, once the unit is made on every rank.
  void take_first_ranks_states(const std::vector<Unit*>& peers);

  void set_root(bool is_root) { is_root_ = is_root; }
  const FlatSettings& settings() const { return settings_; }
  bool sync_gradients = true;  // false inside no_sync
  // A hook reduces: the sum over ranks of what it makes of each gradient.
  struct CommHook {
    double scale = 1, add = 0;
    std::optional<at::ScalarType> dtype;  // in which it is sent
  };
  std::optional<CommHook> comm_hook;
  // Floating buffers that belong to this unit, not to a nested one, with their original dtypes.
  struct Buffer {
    sdk::Module* owner;
    std::string key, name;
    at::ScalarType original;
  };
  std::vector<Buffer> buffers;

 protected:
  at::ScalarType compute_dtype(const UnitParameter& parameter) const override;
  bool catches_gradient(const UnitParameter& parameter) const override;
  sdk::Tensors before_forward(sdk::Tensors inputs) override;
  sdk::Tensors after_forward(sdk::Tensors outputs) override;

 private:
  // A member as it was when parameters were left unsharded.
  struct Seen {
    const at::TensorImpl* tensor;
    const void* storage;
  };
  bool forced_full_precision() const;
  at::ScalarType reduce_dtype() const;
  // Of members in one flat parameter the first that is not frozen or trained as the others are; null: there is none.
  const UnitParameter* partly_frozen() const;
  void refuse_partly_frozen() const;
  void put_back();
  std::vector<at::Tensor> take_gradients();
  bool gives_back_what_was_reduced();
  void accept(std::size_t member, const at::Tensor& reduced);

  FlatSettings settings_;
  FlatLayout layout_;
  bool is_root_ = false;
  std::vector<at::Tensor>
      flattened_;           // the members' memory in the flat parameter, whatever user code assigned since
  std::vector<Seen> seen_;  // empty: nothing was left unsharded
  bool unreduced_is_exposed_ = false;  // after no_sync the exposed gradients are this rank's own
  std::vector<at::Tensor> hidden_;     // reduced gradients that wait behind those
  std::vector<std::pair<at::Tensor, std::uint32_t>>
      added_to_;  // reduced ones, and their versions before backward
};

}  // namespace fsdp_cts::reference
