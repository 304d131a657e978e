// collectives: how many operations of a kind each trace holds, and what each of them must look like.
// collective_bytes: how many bytes each trace adds up to. order: which of two operations comes first.
// transport_bytes: how many bytes crossed the wire, whatever the traces say.
#include "harness/judge/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/judge/expectations/kinds.hpp"

namespace fsdp_cts {
namespace {

bool selected(const Collective& event, const Json& arguments) {
  if (auto op = arguments.find("op"); op != arguments.end() && *op != event.op) return false;
  if (auto phase = arguments.find("phase"); phase != arguments.end() && *phase != event.phase) return false;
  auto size = arguments.find("group_size");
  return size == arguments.end() || size->get<std::size_t>() == event.group.size();
}

// Which selection the scenario made, in words: "all_gather in forward over groups of 2".
std::string subject(const Json& arguments) {
  std::string text = arguments.value("op", std::string("collectives"));
  if (arguments.contains("phase")) text += " in " + arguments["phase"].get<std::string>();
  if (arguments.contains("group_size"))
    text += fmt::format(" over groups of {}", arguments["group_size"].get<int>());
  return text;
}

struct Property {
  const char* name;
  Json (*of)(const Collective&);
};
const Property properties[] = {
    {"dtype", [](const Collective& event) { return Json(event.dtype); }},
    {"reduce_op",
     [](const Collective& event) { return event.reduce_op.empty() ? Json(nullptr) : Json(event.reduce_op); }},
    {"in_numel", [](const Collective& event) { return Json(event.in_numel); }},
    {"out_numel", [](const Collective& event) { return Json(event.out_numel); }},
};

// The ranks that must share a collective with `rank`: "world", "self" or the group it stands in, of a list.
std::vector<int> due_group(const Json& groups, int rank, int world) {
  if (groups == "self") return {rank};
  std::vector<int> all(static_cast<std::size_t>(world));
  std::iota(all.begin(), all.end(), 0);
  if (groups == "world") return all;
  for (const Json& group : groups) {
    auto ranks = group.get<std::vector<int>>();
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return ranks;
  }
  return {};
}

// False after the first finding: one expectation tells one divergence.
bool check_trace(const Trace& trace, const Json& arguments, const JudgeContext& context, Outcome& outcome) {
  long count = 0;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Collective& event = trace.events[i];
    if (!selected(event, arguments)) continue;
    ++count;
    for (const Property& property : properties) {
      auto wanted = arguments.find(property.name);
      if (wanted == arguments.end() || property.of(event) == *wanted) continue;
      Finding finding =
          failure(context, trace.place,
                  {fmt::format("collective_{}", property.name),
                   fmt::format("{}: {} must have {} {}, event {} is {}", describe(trace.place),
                               subject(arguments), property.name, wanted->dump(), i, describe(event)),
                   property.of(event), *wanted});
      finding.divergence["index"] = i;
      outcome.findings.push_back(std::move(finding));
      return false;
    }
    if (!arguments.contains("groups")) continue;
    const auto due = due_group(arguments["groups"], trace.place.rank.value_or(0), context.a_case.world);
    if (event.group == due) continue;
    Finding finding =
        failure(context, trace.place,
                {"collective_group",
                 fmt::format("{}: {} must be over ranks {}, event {} is {}", describe(trace.place),
                             subject(arguments), fmt::join(due, ","), i, describe(event)),
                 event.group, due});
    finding.divergence["index"] = i;
    outcome.findings.push_back(std::move(finding));
    return false;
  }
  const bool exact = arguments.contains("count");
  const long wanted = exact ? arguments["count"].get<long>() : arguments.value("at_least", 1L);
  if (exact ? count == wanted : count >= wanted) return true;
  outcome.findings.push_back(failure(context, trace.place,
                                     {"collective_count",
                                      fmt::format("{}: {} {}, {}{} due", describe(trace.place), count,
                                                  subject(arguments), exact ? "" : "at least ", wanted),
                                      count, wanted}));
  return false;
}

}  // namespace

void check_collectives(const Json& arguments, const Selection& selection, const JudgeContext& context,
                       Outcome& outcome) {
  const auto all = traces(context, selection, outcome.findings);
  if (all.empty()) return nothing_observed(outcome, "trace");
  for (const Trace& trace : all) {
    if (!check_trace(trace, arguments, context, outcome)) return;
  }
}

void check_collective_bytes(const Json& arguments, const Selection& selection, const JudgeContext& context,
                            Outcome& outcome) {
  const auto all = traces(context, selection, outcome.findings);
  if (all.empty()) return nothing_observed(outcome, "trace");
  const double wanted = arguments.at("total").get<double>();
  for (const Trace& trace : all) {
    double total = 0;
    for (const Collective& event : trace.events) {
      if (selected(event, arguments)) total += bytes_sent(event);
    }
    if (total == wanted) continue;
    outcome.findings.push_back(failure(context, trace.place,
                                       {"collective_bytes",
                                        fmt::format("{}: {} send {} bytes, {} are due", describe(trace.place),
                                                    subject(arguments), total, wanted),
                                        total, wanted}));
    return;
  }
}

void check_order(const Json& arguments, const Selection& selection, const JudgeContext& context,
                 Outcome& outcome) {
  const auto all = traces(context, selection, outcome.findings);
  if (all.empty()) return nothing_observed(outcome, "trace");
  for (const Trace& trace : all) {
    const std::vector<Collective>& events = trace.with_compute;
    // Where the first event stands that is meant by "first" or "then".
    const auto position = [&](const char* which) {
      const Json& wanted = arguments.at(which);
      return std::find_if(events.begin(), events.end(), [&](const Collective& event) {
        return selected(event, arguments) && wanted.at("op") == event.op && event.unit == wanted.at("unit");
      });
    };
    const auto shown = [&](const char* which) {
      const Json& wanted = arguments.at(which);
      const auto unit = wanted.at("unit").get<std::string>();
      const auto op = wanted.at("op").get<std::string>();
      return fmt::format("the {} of {}", op == "compute" ? "computation" : op,
                         unit.empty() ? "the root" : "'" + unit + "'");
    };
    const auto first = position("first"), then = position("then");
    std::string wrong;
    for (const auto& [event, which] : {std::pair(first, "first"), std::pair(then, "then")}) {
      if (event != events.end()) continue;
      wrong = shown(which) + " is not in it";
      const auto nameless =
          std::find_if(events.begin(), events.end(), [&, which = which](const Collective& e) {
            return selected(e, arguments) && arguments.at(which).at("op") == e.op && !e.unit;
          });
      if (nameless == events.end()) continue;
      outcome.findings.push_back(
          {VerdictKind::unresolved, "unit_unknown",
           fmt::format(
               "{}: {} is to be found, and the testee does not say which unit its collectives are for "
               "(\"unit\" is null in {})",
               describe(trace.place), shown(which), describe(*nameless))});
      return;
    }
    if (wrong.empty() && then < first)
      wrong = fmt::format("{} is event {} and {} event {}", shown("then"), then - events.begin(),
                          shown("first"), first - events.begin());
    if (wrong.empty()) continue;
    outcome.findings.push_back(
        failure(context, trace.place,
                {"collective_order", fmt::format("{}: {} must come before {}, but {}", describe(trace.place),
                                                 shown("first"), shown("then"), wrong)}));
    return;
  }
}

void check_transport_bytes(const Json& arguments, const Selection&, const JudgeContext& context,
                           Outcome& outcome) {
  if (context.run.closed_connection)
    return outcome.findings.push_back(transport_lost(*context.run.closed_connection));
  if (!context.run.sent)
    return;  // another backend than Gloo: the trace stays the testee's word, and is said to be
  const auto sent = *context.run.sent;
  const auto min_bytes = arguments.at("at_least").get<std::uint64_t>(),
             max_bytes = arguments.at("at_most").get<std::uint64_t>();
  if (sent >= min_bytes && sent <= max_bytes) return;
  Finding finding{
      VerdictKind::fail, "transport_bytes",
      fmt::format(
          "the kernel counted {} bytes sent on the ranks' sockets during the case; {} are due {}", sent,
          sent < min_bytes ? fmt::format("at least {}", min_bytes) : fmt::format("at most {}", max_bytes),
          sent < min_bytes ? "for the gathers and reductions of this program"
                           : "for them, so that something else was sent as well")};
  finding.divergence = {{"actual", sent}, {"expected", sent < min_bytes ? min_bytes : max_bytes}};
  outcome.findings.push_back(std::move(finding));
}

}  // namespace fsdp_cts
