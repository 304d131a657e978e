#include "harness/judge/rank_ends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

namespace fsdp_cts {
namespace {

struct Meaning {
  VerdictKind kind;
  const char* code;  // used where the runner gave no detail code
};

// A testee that began to run and did not come as far as hello has itself to blame; one that could not be run,
// or that the runner could not serve, has not.
Meaning meaning_of_start(const std::string& detail_code) {
  if (detail_code == "no_hello") return {VerdictKind::hang, "no_hello"};
  for (const char* end : {"exit", "signal", "out_of_memory"}) {
    if (detail_code == end) return {VerdictKind::crash, "start_failed"};
  }
  return {VerdictKind::setup_error, "not_started"};
}

Meaning meaning(const RankReport& rank) {
  switch (rank.end) {
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
      return meaning_of_start(rank.detail_code);
    case RankEnd::aborted:
      return {VerdictKind::fail, "aborted"};
  }
  return {VerdictKind::setup_error, "unknown_end"};
}

// A testee may say at the rendezvous that its own instruments see nothing: nothing would be known about the
// implementation, so nothing is said about it (PROTOCOL.md §3).
bool is_blind(const RankReport& rank) {
  return rank.end == RankEnd::error && rank.last_step < 0 && rank.error.is_object() &&
         rank.error.value("type", "") == "InstrumentBlind";
}

// The runner's sentence begins with the rank to blame.
std::optional<int> rank_blamed(const CaseRun& run) {
  int rank = -1;
  if (std::sscanf(run.blame.c_str(), "rank %d ", &rank) != 1) return std::nullopt;
  return rank;
}

Finding finding_for(const Case& a_case, const RankReport& rank, const CaseRun& run) {
  const Meaning what = is_blind(rank) ? Meaning{VerdictKind::setup_error, "instrument_blind"} : meaning(rank);
  const bool began = rank.end == RankEnd::not_started && what.kind == VerdictKind::crash;
  const bool own_code =
      rank.end != RankEnd::error && rank.end != RankEnd::unsupported && !began && !rank.detail_code.empty();
  Finding finding{what.kind, own_code ? rank.detail_code : what.code, ""};
  if (began) finding.divergence["reason"] = rank.detail_code;
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
    if (!run.blame.empty() && (what.kind == VerdictKind::crash || what.kind == VerdictKind::hang))
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
  const std::optional<int> blamed = rank_blamed(run);
  for (const RankReport& rank : run.ranks) {
    if (rank.end == RankEnd::done || (rank.end == RankEnd::aborted && other_cause)) continue;
    // Where the runner knows whose failure came first, that of the others is its consequence.
    if (blamed && rank.rank != *blamed) continue;
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
