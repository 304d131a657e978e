// Where the members of a flat parameter lie. Decides which rank holds what, and the ring's order of
// additions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fsdp_cts::reference {

// With original parameters exposed, each member starts at a multiple of `alignment` elements and the total is
// a multiple of the ranks; without, members lie one after the other.
class FlatLayout {
 public:
  FlatLayout(const std::vector<std::int64_t>& numels, std::int64_t alignment, std::int64_t ranks,
             bool use_orig_params);

  std::int64_t total() const { return total_; }
  std::int64_t offset(std::size_t member) const { return offsets_[member]; }
  // Elements per rank: the first chunk of a split into `ranks`.
  std::int64_t shard_numel() const { return (total_ + ranks_ - 1) / ranks_; }
  // The part of a member that lies in a rank's shard; of no elements where it has none there.
  struct Part {
    std::int64_t begin, end;  // elements of the member
    std::int64_t numel() const { return end - begin; }
  };
  Part part_in_shard(std::size_t member, std::int64_t rank) const;
  std::int64_t numel_in_shard(std::size_t member, std::int64_t rank) const {
    return part_in_shard(member, rank).numel();
  }

  // The members, flattened, in their places; fillers are zero. `padded_to` elements in all.
  at::Tensor join(const std::vector<at::Tensor>& members, std::int64_t padded_to) const;

 private:
  std::vector<std::int64_t> numels_, offsets_;
  std::int64_t total_ = 0, ranks_;
};

}  // namespace fsdp_cts::reference
