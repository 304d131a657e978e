#pragma once
// The streams on which units communicate beside compute, and what bounds the memory that this takes. Everything here
// is empty on a CPU.
//
//   current         computes; optimizers, users and summon scopes work here, and what users changed is taken over here
//   pre_unshard     copies a shard into its place in the whole where compute has another dtype or device
//   unshard         all-gathers, behind pre_unshard
//   pre_reduce      copies gradients in, casts and divides them, beside the reduction of the unit before
//   post_backward   reduce-scatters, casts, and copies to host memory, behind pre_reduce
//   all_reduce      sums between the replicas of hybrid strategies, and what follows, behind post_backward
//
// Memory that one stream owns and another one uses:
//   shard           of current. The streams of gathers wait for what was written to it: at the root's forward, and at a
//                   gather before which somebody wrote (FlatShard::version). Whoever writes comes after the gathers that
//                   read it, since every gather is awaited by current. In host memory: the host waits for the copies
//                   before anybody is shown the shard again.
//   whole           of the stream that writes it first. When it is freed, its memory is recorded for current
//                   (Tensor.record_stream), which has waited for the gather.
//   gradients       from autograd, of current; pre_reduce reads them. StateContext keeps them until current waits. A
//                   whole gradient that waited in no_sync() is of current, too, and may be what is reduced.
//   whole gradient  of pre_reduce; post_backward reads it. StateContext keeps it until pre_reduce waits: behind the next
//                   unit's copy-in, so that two are in use at most. Of NO_SHARD it is the result.
//   reduced         of post_backward, which all_reduce may use: kept until the end of backward, when current waits for
//                   both streams, as are results of NO_SHARD. Later reductions come behind what current did with it, as
//                   pre_reduce waits first.
#include <cstddef>
#include <deque>
#include <vector>

#include "base/streams.hpp"

namespace fsdp::flat {

struct FlatStreams {
  SideStream pre_unshard, unshard, pre_reduce, post_backward;
  SideStream all_reduce;  ///< none without hybrid strategies

  FlatStreams() = default;  ///< everything on the current stream
  FlatStreams(at::Device device, bool hybrid);
  /// What is gathered from now on comes after what the current stream has been given to do.
  void gathers_wait_current() const;
  /// The current stream comes after all reductions.
  void current_waits_reductions() const;
};

/// Tensors that another stream reads, kept until the stream that owns their memory comes after that.
struct KeptTensors {
  std::vector<at::Tensor> tensors;
  StreamEvent read;
  /// The current stream, which owns them, waits, and they are freed.
  void release();
};

/// limit_all_gathers. A host that runs far ahead of its device would allocate one whole after the other while those
/// before cannot be handed out again yet. Where `limit` have been freed and not yet been waited for, the host waits for
/// the oldest before another one is gathered: of one size, `limit` are then in use at most.
class FreeEvents {
 public:
  /// A whole has been freed, and the current stream used it last.
  void freed(at::Device device) { events_.push_back(StreamEvent::record(device)); }
  void wait_for_oldest_at_limit();

 private:
  static constexpr size_t limit = 2;
  std::deque<StreamEvent> events_;
};

}  // namespace fsdp::flat
