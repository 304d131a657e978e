#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/collectives.hpp"
#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {
namespace {

bool same(const Collective& a, const Collective& b) {
  return a.op == b.op && a.dtype == b.dtype && a.reduce_op == b.reduce_op && a.in_numel == b.in_numel &&
         a.out_numel == b.out_numel;
}

bool size_fits(const Collective& event) {
  const auto world = static_cast<std::int64_t>(event.group.size());
  if (event.op == "all_gather") return event.out_numel == event.in_numel * world;
  if (event.op == "reduce_scatter") return event.in_numel == event.out_numel * world;
  if (event.op == "all_reduce") return event.in_numel == event.out_numel;
  return true;
}

using Sequence = std::vector<const Collective*>;

// By step and group: each member's sequence.
using Sequences = std::map<std::pair<int, std::vector<int>>, std::map<int, Sequence>>;

bool check_event(const JudgeContext& context, const Trace& trace, std::size_t i, Outcome& outcome) {
  const Collective& event = trace.events[i];
  auto fail = [&](const char* code, const std::string& words) {
    outcome.findings.push_back(failure(
        context, trace.place,
        {code, fmt::format("{}: event {}, {}, {}", describe(trace.place), i, describe(event), words)}));
    outcome.findings.back().divergence["index"] = i;
    return false;
  };
  if (std::find(event.group.begin(), event.group.end(), *trace.place.rank) == event.group.end())
    return fail("collective_group", "is over ranks this one is not among");
  if (!size_fits(event)) return fail("collective_size", "has sizes that do not fit the group");
  return true;
}

void compare_members(const JudgeContext& context, int step, const std::map<int, Sequence>& members,
                     Outcome& outcome) {
  const auto& [first_rank, first] = *members.begin();
  for (const auto& [rank, sequence] : members) {
    const std::size_t length = std::max(first.size(), sequence.size());
    for (std::size_t i = 0; i < length; ++i) {
      if (i < first.size() && i < sequence.size() && same(*first[i], *sequence[i])) continue;
      auto shown = [&](const Sequence& events) {
        return i < events.size() ? describe(*events[i]) : std::string("nothing more");
      };
      Place place{step, "trace", "", "", rank};
      Finding finding = failure(context, place,
                                {"collective_order",
                                 fmt::format("operation {} of one group is {} on rank {} and {} on rank {}",
                                             i, shown(sequence), rank, shown(first), first_rank),
                                 shown(sequence), shown(first)});
      finding.divergence["index"] = i;
      outcome.findings.push_back(std::move(finding));
      return;
    }
  }
}

}  // namespace

void collectives_agree(const JudgeContext& context, Outcome& outcome) {
  const Selection everything(Json::object(), context.program);
  const auto all = traces(context, everything, outcome.findings);
  Sequences sequences;
  std::map<int, long> per_rank;
  for (const Trace& trace : all) {
    per_rank[*trace.place.rank] += static_cast<long>(trace.events.size());
    for (std::size_t i = 0; i < trace.events.size(); ++i) {
      if (!check_event(context, trace, i, outcome)) return;
    }
    // A member without events of a group that others used has an empty sequence, not none.
    for (const Trace& other : all) {
      if (other.place.step != trace.place.step) continue;
      for (const Collective& event : other.events) {
        if (std::find(event.group.begin(), event.group.end(), *trace.place.rank) != event.group.end())
          sequences[{trace.place.step, event.group}][*trace.place.rank];
      }
    }
    for (const Collective& event : trace.events)
      sequences[{trace.place.step, event.group}][*trace.place.rank].push_back(&event);
  }
  for (const auto& [at, members] : sequences) compare_members(context, at.first, members, outcome);
  // Every rank saw at least so many: the figure a scenario's minimum is held against.
  for (const auto& [rank, count] : per_rank) {
    outcome.counts.collectives =
        rank == per_rank.begin()->first ? count : std::min(outcome.counts.collectives, count);
  }
}

}  // namespace fsdp_cts
