#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {
namespace {

// Copies of it, and its gradient, may lie as it does.
bool is_restrided(const Case& a_case, const Place& place) {
  return std::any_of(a_case.program.begin(), a_case.program.end(), [&](const Json& step) {
    return step["verb"] == "restride" && step["model"] == place.model && step["name"] == place.name;
  });
}

}  // namespace

void tensors_are_contiguous(const JudgeContext& context, Outcome& outcome) {
  for (const RankShard& shard : context.testee.shards) {
    if (shard.contiguous || is_restrided(context.a_case, shard.place)) continue;
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
