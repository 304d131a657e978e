#include "flat/layout.hpp"

#include <algorithm>

namespace fsdp::flat {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int64_t alignment(bool use_orig_params, int64_t compute_itemsize) {
  constexpr int64_t kBytes = 16;
  return use_orig_params ? kBytes / compute_itemsize : 1;
}

double filler(bool use_orig_params) {
  return use_orig_params ? 42.0 : 0.0;
}

FlatLayout lay_out(const LayoutRequest& request) {
  FlatLayout layout;
  int64_t end = 0;
  const auto fill_to = [&](int64_t offset) {
    if (offset > end) layout.gaps.push_back({end, offset - end});
    end = offset;
  };
  for (const auto numel : request.numels) {
    fill_to(round_up(end, request.alignment));
    layout.members.push_back({end, numel});
    end += numel;
  }
  fill_to(round_up(end, request.tail_multiple));
  layout.unsharded_numel = end;
  layout.shard_numel = round_up(end, request.shards) / request.shards;
  layout.padded_numel = layout.shard_numel * request.shards;
  fill_to(layout.padded_numel);
  return layout;
}

ShardPart FlatLayout::part(size_t member, int64_t shard) const {
  const auto& stretch = members[member];
  const auto shard_begin = shard * shard_numel;
  const auto begin = std::max(stretch.offset, shard_begin);
  const auto end = std::min(stretch.offset + stretch.numel, shard_begin + shard_numel);
  if (begin >= end) return {};
  return {begin - shard_begin, begin - stretch.offset, end - begin};
}

int64_t FlatLayout::padding(int64_t shard) const {
  const auto left = unsharded_numel - shard * shard_numel;
  return shard_numel - std::clamp(left, int64_t{0}, shard_numel);
}

}  // namespace fsdp::flat
