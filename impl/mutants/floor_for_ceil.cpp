#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

// Rows that do not divide go to the last rank: right wherever a size divides by the number of ranks.
class FloorForCeil : public fsdp::ShardRule {
 public:
  std::int64_t chunk(std::int64_t size, std::int64_t ranks) const override {
    return size - (ranks - 1) * (size / ranks);
  }
  fsdp::Rows rows(std::int64_t size, std::int64_t ranks, std::int64_t rank) const override {
    const std::int64_t height = size / ranks;
    return {rank * height, rank + 1 == ranks ? size : (rank + 1) * height};
  }
};

}  // namespace

Mutant floor_for_ceil() {
  return {"floor_for_ceil",
          Group::sharding,
          "Pieces are floor(rows / ranks) high, and the last rank takes the rest.",
          "fail",
          "layout",
          "of 5 rows rank 0 holds 2, not 3",
          seams_with<&fsdp::Seams::shard, FloorForCeil>};
}

}  // namespace fsdp_cts::mutants
