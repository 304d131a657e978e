#pragma once
// What users did to parameters and gradients since FSDP last looked, taken over into the flat ones.
//
// use_orig_params = true: users may give a parameter other data, put another tensor into the module's slot,
// replace, change or drop a gradient. false: they may do the same to the flat parameter.
#include "flat/gradient.hpp"
#include "flat/shard.hpp"

namespace fsdp::flat {

class Writeback {
 public:
  /// The parts of one flat parameter, which must live longer.
  Writeback(FlatShard& shard, FlatGradient& gradient, const Showing& showing)
      : shard_(shard), gradient_(gradient), showing_(showing) {}

  /// Values and gradients of all members; without use_orig_params the flat parameter's values alone. Idempotent;
  /// nothing while original parameters are shown whole, where users change what was gathered. With
  /// FSDP_SKIP_WRITEBACK_CHECK nobody looks for changes: our own objects are put back.
  /// Throws RuntimeError for another number of elements, or other dimensions than the piece's one; InvalidState
  /// for a change of what Shown::kept shows; NotImplemented where one of several slots of a shared parameter
  /// was changed alone. What came before a change that is refused has been taken over by then.
  void take_over();
  /// What can be told without a look at each member: a gradient that all members have dropped is dropped;
  /// without use_orig_params that of the flat parameter is taken over, too. Throws RuntimeError as above.
  void take_over_gradients();

 private:
  void take_over_parameters();
  void put_back_parameters();
  void take_over_flat_parameter();
  void take_over_flat_gradient();
  void take_over_each_gradient();

  FlatShard& shard_;
  FlatGradient& gradient_;
  const Showing& showing_;
};

}  // namespace fsdp::flat
