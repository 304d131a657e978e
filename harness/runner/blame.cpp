#include "harness/runner/blame.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

namespace fsdp_cts {
namespace {

bool well(const RankSituation& rank) {
  return rank.report->end == RankEnd::done || rank.report->end == RankEnd::unsupported;
}

// Causes before consequences: ranks whose peer died raise errors, ranks whose peer raised hang.
int severity(RankEnd end) {
  constexpr std::array order = {RankEnd::not_started, RankEnd::crash, RankEnd::protocol_error, RankEnd::error,
                                RankEnd::hang};
  const auto found = std::find(order.begin(), order.end(), end);
  return static_cast<int>(found - order.begin());
}

bool waits_for_others(const RankSituation& rank) {
  return rank.activity == Activity::in_collective;
}

// Smaller is more to blame.
auto guilt(const RankSituation& rank, bool somebody_waits, bool somebody_is_busy) {
  const bool hang = rank.report->end == RankEnd::hang;
  const bool excused = hang && ((somebody_waits && waits_for_others(rank)) ||
                                (!somebody_waits && somebody_is_busy && rank.activity != Activity::busy));
  // Hung ranks fail together, when patience ends: the one least far in the program held up the others.
  const double when = hang ? rank.report->last_step : rank.failed_at.value_or(1e9);
  return std::tuple(severity(rank.report->end), excused, when, rank.report->rank);
}

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", value);
  return text;
}

std::string what_happened(const RankSituation& rank) {
  const RankReport& report = *rank.report;
  switch (report.end) {
    case RankEnd::done:
      return "had finished";
    case RankEnd::unsupported:
      return "does not support the case";
    case RankEnd::not_started:
      return "did not start: " + report.detail;
    case RankEnd::aborted:
      return "was in " + place(report);
    case RankEnd::hang:
      return "hangs in " + place(report) + " without a sign for " + seconds(rank.silent_seconds);
    case RankEnd::crash:
    case RankEnd::error:
    case RankEnd::protocol_error:
      return report.detail + " in " + place(report);
  }
  return "";
}

std::string activity_text(const RankSituation& rank) {
  switch (rank.activity) {
    case Activity::in_collective:
      return ", waiting in " + (rank.collective.empty() ? "a collective" : rank.collective);
    case Activity::busy:
      return ", computing";
    case Activity::asleep:
      return ", asleep outside any collective";
    case Activity::unknown:
      return "";
  }
  return "";
}

std::string collective_text(const RankSituation& rank) {
  return rank.last_collective.empty() ? "" : "; its last known collective was " + rank.last_collective;
}

std::string names(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

// What the others did meanwhile, ranks with the same story together.
std::string others_text(const std::vector<RankSituation>& ranks, int blamed) {
  std::vector<std::pair<std::string, std::vector<int>>> stories;
  for (const RankSituation& rank : ranks) {
    if (rank.report->rank == blamed) continue;
    std::string story = what_happened(rank) + activity_text(rank);
    const auto same =
        std::find_if(stories.begin(), stories.end(), [&](const auto& each) { return each.first == story; });
    if (same == stories.end()) {
      stories.push_back({std::move(story), {rank.report->rank}});
    } else {
      same->second.push_back(rank.report->rank);
    }
  }
  std::string text;
  for (const auto& [story, who] : stories) text += "; " + names(who) + " " + story;
  return text;
}

// Every hung rank waits for others: then one of them, or one that has gone on, left a collective out.
std::string mismatch_text(const std::vector<RankSituation>& ranks, const RankSituation& blamed) {
  if (!waits_for_others(blamed)) return "";
  std::vector<int> ahead;
  for (const RankSituation& rank : ranks) {
    const bool finished = rank.report->end == RankEnd::done;
    if (finished ||
        (rank.report->end == RankEnd::hang && rank.report->last_step > blamed.report->last_step)) {
      ahead.push_back(rank.report->rank);
    }
  }
  if (ahead.empty()) return "";
  return "; " + names(ahead) + " went on without it: a collective that " + names({blamed.report->rank}) +
         " waits for was left out there";
}

}  // namespace

std::string place(const RankReport& report) {
  if (report.last_step >= 0)
    return "step " + std::to_string(report.last_step) + " (" + report.last_verb + ")";
  if (report.last_step == -1) return "the rendezvous";
  return report.last_verb.empty() ? "the time before the first step" : report.last_verb;
}

int culprit(const std::vector<RankSituation>& ranks) {
  const auto hung = [](const RankSituation& rank) { return rank.report->end == RankEnd::hang; };
  const bool somebody_waits = std::any_of(ranks.begin(), ranks.end(), [&](const RankSituation& rank) {
    return hung(rank) && waits_for_others(rank);
  });
  const bool somebody_is_busy = std::any_of(ranks.begin(), ranks.end(), [&](const RankSituation& rank) {
    return hung(rank) && rank.activity == Activity::busy;
  });
  const RankSituation* worst = nullptr;
  for (const RankSituation& rank : ranks) {
    if (well(rank) || rank.report->end == RankEnd::aborted) continue;
    if (worst == nullptr ||
        guilt(rank, somebody_waits, somebody_is_busy) < guilt(*worst, somebody_waits, somebody_is_busy)) {
      worst = &rank;
    }
  }
  return worst == nullptr ? -1 : worst->report->rank;
}

std::string blame_sentence(const std::vector<RankSituation>& ranks) {
  const int blamed = culprit(ranks);
  if (blamed < 0) return "";
  const RankSituation& rank = ranks[static_cast<std::size_t>(blamed)];
  return "rank " + std::to_string(blamed) + " " + what_happened(rank) + activity_text(rank) +
         collective_text(rank) + mismatch_text(ranks, rank) + others_text(ranks, blamed);
}

}  // namespace fsdp_cts
