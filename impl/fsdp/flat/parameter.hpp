#pragma once
// The flat parameter of one unit: the shard that lives for ever, the whole that comes and goes, and the
// original parameters as windows onto one or the other.
//
// An original parameter P is always the same object. Sharded, its data are a 1-D piece of the shard (or
// nothing) and it is a leaf. Whole inside forward and backward, its data are a window onto the gathered
// memory and its gradient edge leads to the unit's GradientSink. Whole in a summon scope, or always with
// NO_SHARD, it is a leaf. Gathered memory is freed and refilled in place, so tensors that autograd saved are
// valid again once it is.
//
// This class gathers and shows. It owns the parts that do the rest, and hands them out: the shard with its
// members (flat/shard.hpp), the gradient (flat/gradient.hpp), what users changed (flat/writeback.hpp).
#include <string>
#include <vector>

#include "flat/gradient.hpp"
#include "flat/gradient_sink.hpp"
#include "flat/shard.hpp"
#include "flat/streams.hpp"
#include "flat/writeback.hpp"

namespace fsdp::flat {

inline constexpr auto kFlatParameterName = "_flat_param";

class FlatParameter {
 public:
  /// Shards. `members` are validated, whole and on a device with memory.
  FlatParameter(const std::vector<MemberPlan>& members, FlatShard::Settings settings,
                GradientSink::Receiver on_gradients);
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  const FlatShard& shard() const { return shard_; }
  FlatGradient& gradient() { return gradient_; }
  const FlatGradient& gradient() const { return gradient_; }
  /// To be asked before a gather and wherever the shard's values count.
  Writeback& writeback() { return writeback_; }

  // Gathering. In full precision the whole lies in memory of its own where compute is in low precision; the
  // other memory is freed. What has no bool works on the one of the last `unshard`.
  /// Begins to gather on `streams`, unless the whole is there. Throws what the group throws, here or in
  /// `wait_for_unshard`.
  void unshard(bool full_precision, const CallSite& site, const FlatStreams& streams);
  /// Without streams the host waits, with them the current stream does.
  void wait_for_unshard();
  /// cpu_offload: the host waits until no copy to the device reads the shard, which users may write to from now on.
  void wait_for_copies_from_host();
  /// `unshard` was called ahead of use: it holds until the parameters are shown whole or their memory is
  /// freed.
  void mark_gathered_ahead();
  bool gathered_ahead() const;  ///< in any precision
  bool gathered_ahead(bool full_precision) const {
    return gathered_ahead() && in_full_precision_ == full_precision;
  }
  bool is_gathered(bool full_precision) const { return unsharded(full_precision).life != Life::freed; }
  bool is_gathered() const { return is_gathered(false) || is_gathered(true); }  ///< in any precision
  /// Whether that has freed memory of a stream of FlatStreams.
  bool free_unsharded();
  void free_unsharded(bool full_precision);
  /// The shard was written to from outside: what was gathered before is no longer true.
  void shard_changed();

  // Showing.
  Shown shown() const { return showing_.how; }
  /// `how`: Shown::tensors or Shown::params.
  void show_unsharded(Shown how);
  void show_sharded();
  /// After forward with grad mode: Shown::tensors becomes Shown::kept.
  void keep_unsharded_views() { showing_.how = Shown::kept; }
  /// Whether a gradient edge leads to the unit's sink now: this forward has its post-backward hook.
  bool catches_gradients() const;
  /// use_orig_params = false: original parameters stand in the registration, or the flat parameter does.
  void register_originals();
  void register_flat();

  /// The whole, padded, 1-D; with memory only while gathered.
  const at::Tensor& whole(bool full_precision) const { return unsharded(full_precision).padded; }
  /// This rank's part of a whole becomes its shard.
  void write_shard_back(const at::Tensor& padded_whole);
  /// After module.to(): the shard follows its parameters to their device and dtype.
  void follow_moves();

 private:
  /// Of gathered memory. What is shown is another life (Showing): between forward and backward a whole can
  /// be kept in sight and be gathered ahead.
  enum class Life {
    freed,     ///< without memory
    gathered,  ///< or about to be: see `gathering`
    ahead,     ///< the same, for a pass that has not come to this unit yet
  };
  struct Unsharded {
    at::Tensor padded;  // memory comes and goes, except NO_SHARD in full precision, where it is the shard
    std::vector<at::Tensor> windows;
    std::shared_ptr<GradientSink> sink;
    Life life = Life::freed;
    WorkPtr gathering;       // without streams, until somebody waits for it
    StreamEvent gathered;    // on streams, likewise
    bool from_side = false;  // the memory belongs to a stream of FlatStreams
  };
  void show_shards_of_members();
  static void wait_for(Unsharded& unsharded);
  void make_all_unsharded();
  void make_unsharded(Unsharded& unsharded, at::ScalarType dtype);
  void free(Unsharded& unsharded);
  Unsharded& unsharded(bool full_precision);
  const Unsharded& unsharded(bool full_precision) const;
  Unsharded& current() { return unsharded(in_full_precision_); }

  FlatShard shard_;
  Showing showing_;
  FlatGradient gradient_;
  Writeback writeback_;
  GradientSink::Receiver on_gradients_;
  Unsharded compute_, full_precision_;
  bool in_full_precision_ = false;  // what the last `unshard` asked for
  StreamEvent copied_from_host_;    // behind the last copy that reads an offloaded shard
};

}  // namespace fsdp::flat
