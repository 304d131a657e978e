#include <fmt/format.h>

#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {

// Tensors of one row lie on one rank as a whole, so the proof is that some rank holds less than everything.
void something_is_sharded(const Scene& scene, Outcome& outcome) {
  std::map<std::string, std::pair<const Held*, bool>>
      models;  // first share seen; whether one proves sharding
  for (const Held& held : scene.testee.held) {
    if (held.place.what != "parameters" || !scene.program.at(held.place.step).settled) continue;
    auto& [first, proven] = models.try_emplace(held.place.model, &held, false).first->second;
    std::int64_t numel = 1;
    for (std::int64_t size : held.global_shape) numel *= size;
    if (held.sharded && held.elements() < numel) proven = true;
  }
  for (const auto& [model, state] : models) {
    if (state.second || !scene.plan.must_shard(model)) continue;
    outcome.findings.push_back(
        failure(scene, state.first->place,
                {"not_sharded",
                 fmt::format("{}: every rank holds all of every parameter of '{}'; the plan shards them",
                             describe(state.first->place), model),
                 "whole", "sharded"}));
  }
}

}  // namespace fsdp_cts
