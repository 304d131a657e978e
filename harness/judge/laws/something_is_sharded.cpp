#include <fmt/format.h>

#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {

// Tensors of one row lie on one rank as a whole, so the proof is that some rank holds less than everything.
void something_is_sharded(const JudgeContext& context, Outcome& outcome) {
  std::map<std::string, std::pair<const RankShard*, bool>>
      models;  // first share seen; whether one proves sharding
  for (const RankShard& shard : context.testee.shards) {
    if (shard.place.what != "parameters" || !context.program.at(shard.place.step).settled) continue;
    auto& [first, proven] = models.try_emplace(shard.place.model, &shard, false).first->second;
    if (shard.sharded && shard.elements() < numel_of(shard.global_shape)) proven = true;
  }
  for (const auto& [model, state] : models) {
    if (state.second || !context.plan.must_shard(model)) continue;
    outcome.findings.push_back(
        failure(context, state.first->place,
                {"not_sharded",
                 fmt::format("{}: every rank holds all of every parameter of '{}'; the plan shards them",
                             describe(state.first->place), model),
                 "whole", "sharded"}));
  }
}

}  // namespace fsdp_cts
