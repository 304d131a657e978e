#pragma once
// Parameters of a unit as wholes, and back: what state dicts are made of and loaded from.
#include <vector>

#include "flat/unit.hpp"
#include "fsdp/sharded_tensor.hpp"
#include "fsdp/state_dict.hpp"

namespace fsdp::flat {

/// Throws InvalidState during forward, backward or a summon scope. After a backward that failed it leaves that first.
void require_idle(FlatState& state);

/// Afterwards the shard is what the user has made of it: cast, moved, written or replaced. Shows shards. Throws as
/// `require_idle`. The unit has parameters.
void take_over_changes(FlatState& state);

/// A unit's parameters in full precision, gathered into memory of their own. Collective over the unit's
/// ranks.
class WholeParameters {
 public:
  explicit WholeParameters(FlatState& state);
  const at::Tensor& operator[](size_t member) const { return windows_[member]; }

 private:
  std::vector<at::Tensor> windows_;
};

/// Anything shaped like a unit's shard as windows of the members' shapes. Collective.
std::vector<at::Tensor> gather_windows(FlatState& state, const at::Tensor& shard);

/// This rank's rows of dimension 0, as fully_shard would cut them; all of them with NO_SHARD.
ShardLayout rows_of(const FlatState& state, at::IntArrayRef shape);
ShardedTensor as_rows(const FlatState& state, const at::Tensor& whole);

/// What sharded_state_dict would hold, on the meta device. No communication.
ShardedStateDict sharded_layouts(const torch::nn::Module& root);

/// What was gathered before goes; changes of users' not yet written back do, too.
void prepare_for_loading(FlatState& state);
/// Puts this rank's part of a whole parameter into the shard.
void load_whole(FlatState& state, size_t member, const at::Tensor& whole);

}  // namespace fsdp::flat
