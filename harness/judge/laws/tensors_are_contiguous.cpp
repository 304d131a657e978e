#include <fmt/format.h>

#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {

void tensors_are_contiguous(const JudgeContext& context, Outcome& outcome) {
  for (const RankShard& shard : context.testee.shards) {
    if (shard.contiguous) continue;
    outcome.findings.push_back(
        failure(context, shard.place,
                {"not_contiguous",
                 fmt::format("{}: does not lie in memory in row-major order and without gaps, which kernels "
                             "and collectives that take its address expect",
                             describe(shard.place)),
                 "strided", "contiguous"}));
    return;
  }
}

}  // namespace fsdp_cts
