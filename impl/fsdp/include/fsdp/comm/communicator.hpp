#pragma once
// The communication contract: all that the library asks of a backend. One object stands for one group of
// ranks.
//
// Order: all ranks of a group issue the same collectives, with the same dtypes, sizes and reductions, in the
// same order; and groups that overlap are made in the same order. Collectives return at once. Their Works may
// be waited for in any order, a different one on every rank, or be dropped. Nothing that a rank waits for
// depends on whether or when another rank waits. (A GPU's streams add rules of their own, see nccl.hpp.)
//
// `Work::wait` blocks the host on a CPU, and throws what went wrong. On an accelerator a collective is put on the
// current stream, as any operator is, and `wait` lets the stream that is current by then come after it.
// Tensors are one-dimensional and contiguous, are kept alive by the Work as the group is, and must not be
// touched before `wait`. A Work that is dropped before waits in its destructor and throws nothing.
//
// Threads: one thread at a time issues collectives of a group or makes its subgroups. `rank`, `ranks`, `size`
// and `device` may be called at any time, and a Work may be waited for and dropped by any thread, by one at a
// time, while others issue and wait for other Works. Different groups have nothing in common in this respect.
//
// A backend is a folder beside this file.
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

enum class ReduceOp { sum, avg, max, premul_sum };

/// `avg` divides by the group size after summing, in the tensor's dtype. `premul_sum` multiplies by `factor`
/// before summing.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double factor = 1.0;
};

/// What a training step is doing when a collective is issued.
enum class Phase { init, forward, backward, state_dict, other };

/// Who asks. For records only; a backend must not act on it.
struct CallSite {
  std::string unit;  ///< fully qualified name of the sharded module, "" for the root
  bool has_unit = false;
  Phase phase = Phase::other;
};

class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
};
using WorkPtr = std::unique_ptr<Work>;

/// One tensor of a collective over several. Block r of `large`, for the r-th rank, are the `small.numel()`
/// elements from r * small.numel() on.
struct Part {
  at::Tensor large;
  at::Tensor small;
};

/// Collectives over several tensors that move each of them from where it lies to where it belongs. One call
/// is one collective.
class PartwiseCollectives {
 public:
  virtual ~PartwiseCollectives() = default;
  /// From `small`, which may be this rank's block of `large`, to `large`.
  virtual WorkPtr all_gather(const std::vector<Part>& parts, const CallSite& site) = 0;
  /// From `large` to `small`. The last blocks of `large` may be short or missing; what is missing counts as
  /// zeros.
  virtual WorkPtr reduce_scatter(const std::vector<Part>& parts, Reduction reduction,
                                 const CallSite& site) = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;                       ///< within this group
  virtual const std::vector<int64_t>& ranks() const = 0;  ///< world ranks of the members, in group order
  int64_t size() const { return static_cast<int64_t>(ranks().size()); }
  virtual at::Device device() const = 0;  ///< where the tensors must live

  /// out.numel() == size() * in.numel(); `in` may be this rank's slice of `out`.
  virtual WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite& site) = 0;
  /// in.numel() == size() * out.numel(). `in` may be overwritten.
  virtual WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduction reduction,
                                 const CallSite& site) = 0;
  virtual WorkPtr all_reduce(at::Tensor tensor, Reduction reduction, const CallSite& site) = 0;
  virtual WorkPtr broadcast(at::Tensor tensor, int64_t root, const CallSite& site) = 0;
  /// Null where one tensor is all that a collective can move: callers pack.
  virtual PartwiseCollectives* partwise() { return nullptr; }

  /// The group of the given members (world ranks). Called by these members only; the same ranks give the same
  /// group again.
  virtual std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>& ranks) = 0;
};

}  // namespace fsdp
