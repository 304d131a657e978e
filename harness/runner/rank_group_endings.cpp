// How ranks end a case, well or not, and what becomes of the group then.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <system_error>
#include <utility>

#include "harness/runner/exit_reason.hpp"
#include "harness/runner/rank_group.hpp"

namespace fsdp_cts {
namespace {

std::string seconds(Deadlines::Duration duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", duration.count());
  return text;
}

}  // namespace

void RankGroup::take_output(Rank& rank) {
  std::array<char, 262144> bytes;
  // Bounded, so that a rank that shouts does not keep the others from being heard.
  for (int turn = 0; turn < 16; ++turn) {
    const ssize_t n = ::read(rank.process->output(), bytes.data(), bytes.size());
    if (n == 0) loop_.unwatch(rank.process->output());
    if (n <= 0) return;
    rank.output.append({bytes.data(), static_cast<std::size_t>(n)});
  }
}

void RankGroup::process_ended(Rank& rank) {
  // What it said and wrote before its end comes first.
  if (rank.link != nullptr) rank.link->drain();
  take_output(rank);
  const std::optional<int> status = rank.process->reap();
  loop_.unwatch(rank.process->end());
  if (!status) return;  // somebody traces it and keeps its end back
  loop_.unwatch(rank.process->output());
  if (phase_ == Phase::terminating) return leave_if_empty();
  if (phase_ == Phase::examining || phase_ == Phase::gone) return;
  if (bye_said_ && *status == 0) {
    settle(rank, RankEnd::done, "", "");
    return conclude_if_settled();
  }
  if (rank.settled && rank.report.end != RankEnd::done && phase_ == Phase::failing)
    return;  // its own failure came first
  const ExitReason reason = explain_exit(*status, rank.output.text(), oom_kill_count() - oom_kills_before_);
  if (rank.stream_ended.value_or(false) && WIFEXITED(*status)) {
    return fail(rank, RankEnd::protocol_error, "truncated_frame",
                "its socket ended inside a frame, and it " + reason.sentence);
  }
  if (!rank.greeted)
    return fail(rank, RankEnd::not_started, reason.code, "it " + reason.sentence + " before it said hello");
  std::string sentence = reason.sentence;
  if (assignment_.case_id.empty() && !bye_said_) sentence += " between two cases, after " + previous_case_;
  fail(rank, RankEnd::crash, reason.code, std::move(sentence));
}

void RankGroup::stream_closed(Rank& rank, bool inside_frame) {
  rank.stream_ended = inside_frame;
  if (bye_said_ && !rank.process) {  // ranks started elsewhere end out of sight
    settle(rank, RankEnd::done, "", "");
    return conclude_if_settled();
  }
  if (bye_said_ || (rank.settled && rank.report.end != RankEnd::done)) return;
  // Most often the process has ended, and its exit status, which comes a moment later, tells more. Until then
  // its report is open.
  begin_failing();
  rank.settled = false;
}

void RankGroup::settle(Rank& rank, RankEnd end, std::string code, std::string detail) {
  rank.settled = true;
  rank.report.end = end;
  rank.report.detail_code = std::move(code);
  rank.report.detail = std::move(detail);
}

void RankGroup::fail(Rank& rank, RankEnd end, std::string code, std::string detail) {
  begin_failing();
  if (end == RankEnd::protocol_error) {
    detail = "broke the protocol (" + code + "): " + detail;
    if (rank.link != nullptr) rank.link->silence();
  }
  settle(rank, end, std::move(code), std::move(detail));
  rank.failed_at = Clock::now();
  conclude_if_settled();
}

void RankGroup::begin_failing() {
  if (phase_ == Phase::idle) begin({});  // it happened between two cases and needs a report of its own
  if (phase_ == Phase::starting || phase_ == Phase::running || phase_ == Phase::closing ||
      phase_ == Phase::idle) {
    phase_ = Phase::failing;
    phase_began_ = Clock::now();
  }
}

void RankGroup::examine(std::string code) {
  expiry_code_ = std::move(code);
  phase_ = Phase::examining;
  phase_began_ = Clock::now();
  for (const auto& link : links_) link->silence();
  for (Rank& rank : ranks_) {
    if (!rank.process || rank.process->reap()) continue;
    rank.stacks = std::make_unique<StackCollector>(loop_, rank.process->pid(), guardian_,
                                                   [this] { conclude_if_settled(); });
  }
  conclude_if_settled();
}

void RankGroup::conclude_if_settled() {
  if (phase_ == Phase::examining) {
    const bool looking = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return rank.stacks && !rank.stacks->finished();
    });
    if (!looking) conclude();
    return;
  }
  if (phase_ != Phase::running && phase_ != Phase::closing && phase_ != Phase::failing) return;
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.settled; })) conclude();
}

void RankGroup::settle_the_rest() {
  for (Rank& rank : ranks_) {
    if (rank.settled) continue;
    if (phase_ != Phase::examining) {
      if (rank.stream_ended) {
        const std::string code = *rank.stream_ended ? "truncated_frame" : "closed_socket";
        settle(rank, RankEnd::protocol_error, code,
               "broke the protocol (" + code + "): it closed its socket " +
                   (*rank.stream_ended ? "inside a frame" : "before the end") +
                   (rank.process ? " and lives on" : ""));
        rank.failed_at = phase_began_;
      } else {
        settle(rank, RankEnd::aborted, "aborted", "was ended because another rank failed");
      }
    } else if (!rank.greeted) {
      settle(rank, RankEnd::not_started, expiry_code_,
             "it never said hello within " + seconds(limits_.deadlines.start) + refusals_);
    } else if (expiry_code_ == "no_hello") {
      settle(rank, RankEnd::aborted, "aborted", "waited for ranks that never said hello");
    } else {
      settle(rank, RankEnd::hang, expiry_code_, "hangs in " + place(rank.report));
    }
  }
}

std::vector<RankSituation> RankGroup::situations() const {
  std::vector<RankSituation> result;
  for (const Rank& rank : ranks_) {
    RankSituation situation;
    situation.report = &rank.report;
    situation.last_collective = rank.last_collective;
    if (rank.stacks && rank.report.end != RankEnd::done) {
      Stacks stacks = rank.stacks->result();
      situation.activity = stacks.activity;
      situation.collective = std::move(stacks.collective);
    }
    situation.silent_seconds = std::chrono::duration<double>(phase_began_ - rank.last_sign).count();
    if (rank.failed_at)
      situation.failed_at = std::chrono::duration<double>(*rank.failed_at - assigned_at_).count();
    result.push_back(std::move(situation));
  }
  return result;
}

void RankGroup::conclude() {
  settle_the_rest();
  const Phase ended_in = phase_;
  for (Rank& rank : ranks_) {
    if (rank.process) take_output(rank);
    rank.report.captured_output = rank.output.text();
    if (rank.stacks) rank.report.stacks = rank.stacks->result().text;
  }
  CaseRun run;
  run.case_id = assignment_.case_id;
  run.hello = hello_;
  run.blame = blame_sentence(situations());
  if (assignment_.patience && expiry_code_ == "verb_deadline") {
    run.blame += "; a step had " + seconds(verb_patience()) + " instead of " +
                 seconds(limits_.deadlines.verb * assignment_.slowness) + ", because " + assignment_.patience->because +
                 " hung before";
  }
  for (const Rank& rank : ranks_) run.ranks.push_back(rank.report);
  run.observations = std::move(observations_);
  run.seconds = Clock::now() - assigned_at_;
  run.sent = sent_in_case();
  std::error_code ignored;
  std::filesystem::remove_all(case_folder(), ignored);

  const bool clean = ended_in == Phase::running || ended_in == Phase::closing;
  if (ended_in != Phase::closing) results_.push_back(std::move(run));
  phase_ = Phase::idle;
  if (!clean || ended_in == Phase::closing) terminate();
}

// Nothing unless all ranks came to the end: only then have all sends of the case been made.
std::optional<std::uint64_t> RankGroup::sent_in_case() const {
  const bool all_done = std::all_of(ranks_.begin(), ranks_.end(),
                                    [](const Rank& rank) { return rank.report.end == RankEnd::done; });
  if (!all_done || !sent_before_) return std::nullopt;
  const auto now = sent_so_far();
  if (!now) return std::nullopt;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const auto sent = sent_between(sent_before_->at(i), now->at(i));
    if (!sent) return std::nullopt;
    sum += *sent;
  }
  return sum;
}

void RankGroup::leave_if_empty() {
  const bool ended = std::all_of(ranks_.begin(), ranks_.end(),
                                 [](const Rank& rank) { return !rank.process || rank.process->reap(); });
  if (!ended && !killed_) return;
  const Clock::time_point now = Clock::now();
  if (!leaving_since_) leaving_since_ = now;
  bool empty = true;
  for (Rank& rank : ranks_) empty &= !rank.process || rank.process->group_gone();
  if (phase_ != Phase::fresh && !testee_.self) empty &= strays_.gone();
  if (empty || now >= *leaving_since_ + clock_duration(limits_.deadlines.leftovers)) return leave();
  look_again_ = now + std::chrono::milliseconds(10);
}

void RankGroup::leave() {
  for (Rank& rank : ranks_) {
    if (!rank.process) continue;
    loop_.unwatch(rank.process->end());
    loop_.unwatch(rank.process->output());
  }
  std::error_code ignored;
  std::filesystem::remove_all(home_.folder, ignored);
  phase_ = Phase::gone;
}

}  // namespace fsdp_cts
