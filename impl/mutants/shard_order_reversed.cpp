#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

class ShardOrderReversed : public fsdp::ShardRule {
 public:
  fsdp::Rows rows(std::int64_t size, std::int64_t ranks, std::int64_t rank) const override {
    return fsdp::ShardRule::rows(size, ranks, ranks - 1 - rank);
  }
};

}  // namespace

Mutant shard_order_reversed() {
  return {"shard_order_reversed",
          Group::sharding,
          "The last rank holds the first rows.",
          "fail",
          "layout",
          "rank 0 holds the last piece, and what is gathered stands in the wrong order",
          seams_with<&fsdp::Seams::shard, ShardOrderReversed>};
}

}  // namespace fsdp_cts::mutants
