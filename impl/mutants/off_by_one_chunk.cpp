#include <algorithm>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class OffByOneChunk : public fsdp::ShardRule {
 public:
  fsdp::Rows rows(std::int64_t size, std::int64_t ranks, std::int64_t rank) const override {
    const fsdp::Rows right = fsdp::ShardRule::rows(size, ranks, rank);
    return {std::min(right.begin + 1, size), std::min(right.end + 1, size)};
  }
};

}  // namespace

Mutant off_by_one_chunk() {
  return {"off_by_one_chunk", Group::sharding,      "Every rank's rows begin one row too late.",   "fail",
          "shard_missing",    "nobody holds row 0", seams_with<&fsdp::Seams::shard, OffByOneChunk>};
}

}  // namespace fsdp_cts::mutants
