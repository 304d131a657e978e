#include "harness/judge/known_deviations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/scenario/edition.hpp"
#include "harness/scenario/glob.hpp"

namespace fsdp_cts {
namespace {

std::string as_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool at_locus(const KnownDeviation& deviation, const Verdict& verdict) {
  return std::all_of(deviation.locus.begin(), deviation.locus.end(), [&](const auto& wanted) {
    const auto& [key, pattern] = wanted;
    if (key == "code") return matches_glob(verdict.code, pattern);
    auto found = verdict.divergence.find(key);
    return found != verdict.divergence.end() && matches_glob(as_text(*found), pattern);
  });
}

bool as_announced(const KnownDeviation& deviation, const Verdict& verdict) {
  return verdict.kind == deviation.verdict && at_locus(deviation, verdict);
}

bool can_be_announced(VerdictKind kind) {
  return kind == VerdictKind::fail || kind == VerdictKind::crash || kind == VerdictKind::hang ||
         kind == VerdictKind::unresolved || kind == VerdictKind::unsupported;
}

// `days` after a date, both as YYYY-MM-DD.
std::string date_after(const std::string& date, int days) {
  using namespace std::chrono;
  const year_month_day from{year{std::stoi(date.substr(0, 4))},
                            month{static_cast<unsigned>(std::stoi(date.substr(5, 2)))},
                            day{static_cast<unsigned>(std::stoi(date.substr(8, 2)))}};
  const year_month_day to{sys_days{from} + std::chrono::days{days}};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(to.year()), static_cast<unsigned>(to.month()),
                     static_cast<unsigned>(to.day()));
}

int matching(const KnownDeviation& deviation, const std::vector<Case>& suite) {
  return static_cast<int>(std::count_if(
      suite.begin(), suite.end(), [&](const Case& each) { return matches_glob(each.id, deviation.id); }));
}

}  // namespace

KnownDeviations::KnownDeviations(const std::filesystem::path& file,
                                 std::map<std::string, std::string> context, std::string today)
    : file_(file),
      context_(std::move(context)),
      today_(std::move(today)),
      entries_(read_deviations(file)),
      seen_(entries_.size()) {}

bool KnownDeviations::in_effect(const KnownDeviation& deviation, const Case& a_case) const {
  if (!matches_glob(a_case.id, deviation.id)) return false;
  return std::all_of(deviation.when.begin(), deviation.when.end(), [&](const auto& condition) {
    const auto& [key, pattern] = condition;
    if (key == "world") return matches_glob(std::to_string(a_case.world), pattern);
    auto found = context_.find(key);
    if (found == context_.end()) return false;
    return key == "version" ? version_within(found->second, pattern) : matches_glob(found->second, pattern);
  });
}

Verdict KnownDeviations::apply(const Case& a_case, const Verdict& verdict, std::string& note) {
  if (verdict.kind == VerdictKind::skipped) return verdict;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const KnownDeviation& deviation = entries_[i];
    if (!in_effect(deviation, a_case)) continue;
    seen_[i].push_back({a_case.id, verdict});
    Verdict result = verdict;
    if (expired(deviation)) {
      note = fmt::format("announced until {}: {}", deviation.expires, deviation.reason);
    } else if (verdict.kind == VerdictKind::pass) {
      result.kind = VerdictKind::xpass;
      result.code = "stale";
      result.summary = fmt::format("passes, but {}:{} announces {}", file_.string(), deviation.line,
                                   verdict_name(deviation.verdict));
      note = deviation.reason;
    } else if (as_announced(deviation, verdict)) {
      result.kind = VerdictKind::xfail;
      note = fmt::format("known until {}: {}{}", deviation.expires, deviation.reason,
                         deviation.url.empty() ? "" : " (" + deviation.url + ")");
    } else {
      note = fmt::format("announced as {} for another reason: {}", verdict_name(deviation.verdict),
                         deviation.reason);
    }
    return result;
  }
  if (can_be_announced(verdict.kind)) unannounced_.push_back({a_case.id, verdict});
  return verdict;
}

std::vector<std::string> KnownDeviations::ids() const {
  std::vector<std::string> ids;
  for (const KnownDeviation& entry : entries_) ids.push_back(entry.id);
  return ids;
}

std::vector<std::string> KnownDeviations::faults(const std::vector<Case>& suite) const {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const KnownDeviation& deviation = entries_[i];
    auto fault = [&](const std::string& what) {
      result.push_back(fmt::format("{}:{}: '{}' {}", file_.string(), deviation.line, deviation.id, what));
    };
    const int cases = matching(deviation, suite);
    if (cases == 0) fault("is for no case of the suite: stale");
    if (cases > max_cases_per_deviation)
      fault(fmt::format("is for {} cases, at most {} are allowed: name what deviates", cases,
                        max_cases_per_deviation));
    if (expired(deviation)) fault("has expired on " + deviation.expires);
    for (const Seen& seen : seen_[i]) {
      if (seen.verdict.kind == VerdictKind::pass || as_announced(deviation, seen.verdict) ||
          expired(deviation))
        continue;
      fault(fmt::format("announces {}, but {} is {} ({})", verdict_name(deviation.verdict), seen.case_id,
                        verdict_name(seen.verdict.kind), seen.verdict.code));
      break;
    }
  }
  return result;
}

std::vector<KnownDeviation> KnownDeviations::fixed(const std::vector<Case>& suite) const {
  std::vector<KnownDeviation> result;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const KnownDeviation& entry = entries_[i];
    const int cases = matching(entry, suite);
    if (cases == 0) continue;
    // A setup_error is the suite's own and cannot be announced: nothing is known about the entry.
    const bool unjudged = std::any_of(seen_[i].begin(), seen_[i].end(), [](const Seen& seen) {
      return seen.verdict.kind == VerdictKind::setup_error;
    });
    if (expired(entry) || seen_[i].empty() || unjudged) {
      result.push_back(entry);
      continue;
    }
    std::vector<Seen> deviating;
    for (const Seen& seen : seen_[i]) {
      if (seen.verdict.kind != VerdictKind::pass) deviating.push_back(seen);
    }
    const bool all_announced = std::all_of(deviating.begin(), deviating.end(), [&](const Seen& seen) {
      return as_announced(entry, seen.verdict);
    });
    if (all_announced && deviating.size() == seen_[i].size() && cases <= max_cases_per_deviation) {
      result.push_back(entry);
      continue;
    }
    for (const Seen& seen : deviating) {
      KnownDeviation one = entry;
      one.id = seen.case_id;
      if (!as_announced(entry, seen.verdict)) {
        one.verdict = seen.verdict.kind;
        one.locus = {{"code", seen.verdict.code}};
      }
      result.push_back(one);
    }
  }
  return result;
}

KnownDeviation KnownDeviations::announced(const Seen& seen) const {
  KnownDeviation entry;
  entry.id = seen.case_id;
  entry.verdict = seen.verdict.kind;
  if (entry.verdict != VerdictKind::unsupported) entry.locus = {{"code", seen.verdict.code}};
  entry.reason =
      "to be explained: " + (seen.verdict.summary.empty() ? seen.verdict.code : seen.verdict.summary);
  entry.expires = date_after(today_, 90);
  return entry;
}

std::string KnownDeviations::rewrite(const std::vector<Case>& suite) const {
  std::vector<KnownDeviation> entries = fixed(suite);
  const std::size_t kept = entries.size();
  for (const Seen& seen : unannounced_) {
    if (entries.size() - kept == max_additions) break;
    entries.push_back(announced(seen));
  }
  const std::size_t added = entries.size() - kept;
  write_deviations(file_, entries);
  return fmt::format(
      "{}: {} entries before, {} of them or in their place now, {} added{}", file_.string(), entries_.size(),
      kept, added,
      added < unannounced_.size()
          ? fmt::format("; {} more deviate and were not added: choose a level that asks for what is offered",
                        unannounced_.size() - added)
          : "");
}

}  // namespace fsdp_cts
