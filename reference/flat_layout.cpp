#include "reference/flat_layout.hpp"

#include <ATen/ATen.h>

#include <algorithm>

namespace fsdp_cts::reference {
namespace {

std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
  return (a + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<std::int64_t>& numels, std::int64_t alignment, std::int64_t ranks,
                       bool use_orig_params)
    : numels_(numels), ranks_(ranks) {
  for (const std::int64_t numel : numels) {
    if (use_orig_params) total_ = round_up(total_, alignment);
    offsets_.push_back(total_);
    total_ += numel;
  }
  if (use_orig_params) total_ = round_up(total_, ranks);
}

FlatLayout::Part FlatLayout::part_in_shard(std::size_t member, std::int64_t rank) const {
  const std::int64_t shard_begin = rank * shard_numel() - offsets_[member];
  const auto inside = [&](std::int64_t at) { return std::clamp<std::int64_t>(at, 0, numels_[member]); };
  return {inside(shard_begin), inside(shard_begin + shard_numel())};
}

at::Tensor FlatLayout::join(const std::vector<at::Tensor>& members, std::int64_t padded_to) const {
  at::Tensor flat = at::zeros({padded_to}, members.front().options().requires_grad(false));
  for (std::size_t i = 0; i < members.size(); ++i)
    flat.narrow(0, offsets_[i], numels_[i]).copy_(members[i].reshape({-1}));
  return flat;
}

}  // namespace fsdp_cts::reference
