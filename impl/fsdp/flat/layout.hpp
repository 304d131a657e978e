#pragma once
// Where parameters lie in a flat parameter, and which part of it a rank holds. Arithmetic only; in elements.
#include <cstdint>
#include <vector>

namespace fsdp::flat {

struct Stretch {
  int64_t offset = 0;
  int64_t numel = 0;
};

/// A parameter's elements in one rank's shard.
struct ShardPart {
  int64_t offset = 0;  ///< in the shard
  int64_t start = 0;   ///< first of its own elements that this rank has
  int64_t length = 0;  ///< 0: not in this shard
  bool in_shard() const { return length > 0; }
};

struct FlatLayout {
  std::vector<Stretch> members;
  std::vector<Stretch> gaps;    ///< fillers between and behind members, of the gathered whole
  int64_t unsharded_numel = 0;  ///< members, alignment, tail up to a multiple of the ranks where aligned
  int64_t shard_numel = 0;
  int64_t padded_numel = 0;  ///< shard_numel * number of shards

  ShardPart part(size_t member, int64_t shard) const;
  /// Elements at the end of a shard that lie behind the unsharded flat parameter.
  int64_t padding(int64_t shard) const;
};

struct LayoutRequest {
  std::vector<int64_t> numels;
  int64_t alignment = 1;
  int64_t tail_multiple = 1;  ///< the unsharded numel becomes a multiple of it
  int64_t shards = 1;
};
FlatLayout lay_out(const LayoutRequest& request);

/// Parameters start at multiples of this: 16 bytes of the compute dtype with use_orig_params, else one
/// element.
int64_t alignment(bool use_orig_params, int64_t compute_itemsize);
/// What fills the gaps. With use_orig_params a number that would be seen if it ever counted.
double filler(bool use_orig_params);

}  // namespace fsdp::flat
