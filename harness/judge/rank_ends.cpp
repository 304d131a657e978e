#include "harness/judge/rank_ends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace fsdp_cts {
namespace {

struct Meaning {
  VerdictKind kind;
  const char* code;  // used where the runner gave no detail code
};

Meaning meaning(RankEnd end) {
  switch (end) {
    case RankEnd::done:
      return {VerdictKind::pass, "done"};
    case RankEnd::error:
      return {VerdictKind::fail, "exception"};
    case RankEnd::unsupported:
      return {VerdictKind::unsupported, "unsupported"};
    case RankEnd::crash:
      return {VerdictKind::crash, "crash"};
    case RankEnd::hang:
      return {VerdictKind::hang, "hang"};
    case RankEnd::protocol_error:
      return {VerdictKind::fail, "protocol_error"};
    case RankEnd::not_started:
      return {VerdictKind::setup_error, "not_started"};
    case RankEnd::aborted:
      return {VerdictKind::fail, "aborted"};
  }
  return {VerdictKind::setup_error, "unknown_end"};
}

Finding finding_for(const Case& a_case, const RankReport& rank, const CaseRun& run) {
  const Meaning what = meaning(rank.end);
  const bool own_code =
      rank.end != RankEnd::error && rank.end != RankEnd::unsupported && !rank.detail_code.empty();
  Finding finding{what.kind, own_code ? rank.detail_code : what.code, ""};
  std::string detail = rank.detail;
  Json& divergence = finding.divergence;
  if (rank.end == RankEnd::error && rank.error.is_object()) {
    detail = fmt::format("{}: {}", rank.error.value("type", "error"), rank.error.value("message", ""));
    divergence["phase"] = rank.error.value("phase", "other");
    divergence["error"] = rank.error;
  }
  divergence["rank"] = rank.rank;
  if (rank.last_step >= 0) {
    divergence["step"] = rank.last_step;
    finding.step = rank.last_step;
    const auto step = static_cast<std::size_t>(rank.last_step);
    if (step < a_case.program.size() && a_case.program[step].contains("iteration"))
      divergence["iteration"] = a_case.program[step]["iteration"];
  }
  if (!rank.last_verb.empty()) divergence["verb"] = rank.last_verb;
  if (!rank.stacks.empty()) divergence["stacks"] = rank.stacks;
  if (!rank.captured_output.empty()) divergence["output"] = rank.captured_output;
  if (rank.end == RankEnd::unsupported) {
    finding.summary = detail;
  } else {
    const std::string where =
        rank.last_verb.empty() ? "" : fmt::format(" in {} (step {})", rank.last_verb, rank.last_step);
    finding.summary = fmt::format("rank {}{}: {}", rank.rank, where, detail);
    if (!run.blame.empty() && (rank.end == RankEnd::crash || rank.end == RankEnd::hang))
      finding.summary = run.blame;
  }
  return finding;
}

}  // namespace

bool check_rank_ends(const Case& a_case, const CaseRun& run, Outcome& outcome) {
  std::set<int> answered;
  long unsupported = 0;
  for (const RankReport& rank : run.ranks) {
    if (rank.end == RankEnd::done) answered.insert(rank.rank);
    if (rank.end == RankEnd::unsupported) ++unsupported;
  }
  outcome.counts.ranks = static_cast<int>(answered.size());
  if (static_cast<int>(answered.size()) == a_case.world) return true;

  // Ranks that were only killed because of another one are no cause.
  const bool other_cause = std::any_of(run.ranks.begin(), run.ranks.end(), [](const RankReport& rank) {
    return rank.end != RankEnd::done && rank.end != RankEnd::aborted;
  });
  for (const RankReport& rank : run.ranks) {
    if (rank.end == RankEnd::done || (rank.end == RankEnd::aborted && other_cause)) continue;
    outcome.findings.push_back(finding_for(a_case, rank, run));
  }
  if (unsupported > 0 && unsupported < a_case.world &&
      static_cast<int>(answered.size()) + unsupported == a_case.world) {
    outcome.findings.push_back(
        {VerdictKind::fail, "unsupported_disagreement",
         fmt::format("{} of {} ranks say the case is unsupported; that must depend on the case only",
                     unsupported, a_case.world)});
  }
  if (outcome.findings.empty()) {
    outcome.findings.push_back(
        {VerdictKind::setup_error, "rank_missing",
         fmt::format("{} of {} ranks are in the run's report", run.ranks.size(), a_case.world)});
  }
  return false;
}

}  // namespace fsdp_cts
