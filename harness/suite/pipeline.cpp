#include "harness/suite/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/exactness.hpp"
#include "harness/judge/reference_key.hpp"
#include "harness/runner/checkpoints.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts {
namespace {

bool all_done(const CaseRun& run) {
  return !run.ranks.empty() && std::all_of(run.ranks.begin(), run.ranks.end(),
                                           [](const RankReport& rank) { return rank.end == RankEnd::done; });
}

// With different cases; then the testee counts as one that does not start.
constexpr int start_attempts = 2;

bool proves_exactness(const Case& a_case, bool record) {
  return record && a_case.lane == Lane::exact;
}

// It says nothing about loading that there is nothing to load.
Verdict no_checkpoint(const Case& a_case) {
  Verdict verdict;
  verdict.case_id = a_case.id;
  verdict.kind = VerdictKind::unresolved;
  verdict.code = "no_checkpoint";
  verdict.summary =
      "not tried: it loads what " + a_case.continues + " saves, and that case did not come to its end";
  return verdict;
}

bool compares_within_tolerance(const Case& a_case) {
  const TruthsNeeded needed = truths_needed(a_case);
  return a_case.lane == Lane::tolerance && (needed.reference || needed.golden);
}

}  // namespace

bool asks_reference(const Case& a_case, bool record) {
  return truths_needed(a_case).reference || proves_exactness(a_case, record) ||
         compares_within_tolerance(a_case);
}

Pipeline::Pipeline(PipelineOptions options, WarmProcesses& processes)
    : options_(std::move(options)),
      session_(processes.session(options_.session)),
      testee_(processes.keep(options_.testee)),
      oracle_(processes.keep(options_.oracle)),
      golden_(options_.golden) {}

std::vector<std::string> Pipeline::Entry::keys() const {
  std::vector<std::string> all = others;
  if (!native.empty()) all.push_back(native);
  return all;
}

std::string Pipeline::declared_order() const {
  return hello_.is_object() ? hello_.value("reduction_order", "unspecified") : "unspecified";
}

// Two summands have no order, so worlds up to 2 share one question whatever the testee declares.
std::string Pipeline::order_for(const Case& a_case) const {
  return a_case.world > 2 && declared_order() == "ring" ? "ring" : "rank";
}

std::string Pipeline::ask(const Case& a_case, const std::string& order, const std::string& precision,
                          std::vector<Job>& jobs) {
  std::string key = reference_key(a_case, order, precision);
  auto [reference, fresh] = references_.try_emplace(key);
  ++reference->second.users;
  if (fresh)
    jobs.push_back(
        {&oracle_,
         &a_case,
         {{"reduction_order", order}, {"precision", precision}, {"edition", options_.edition.text()}},
         key});
  return key;
}

void Pipeline::ask(Entry& entry, std::vector<Job>& jobs) {
  const Case& a_case = *entry.a_case;
  const bool exactness = proves_exactness(a_case, options_.record);
  // A run asks for the noise only where a verdict hangs on it; a recording is refused if it drowns in it.
  const bool noise = compares_within_tolerance(a_case) && (entry.noise_due || options_.record);
  if (entry.native.empty()) {
    if (!truths_needed(a_case).reference && !exactness && !noise) return;
    entry.order = order_for(a_case);
    entry.order_changed = false;
    entry.native = ask(a_case, entry.order, "native", jobs);
  }
  if (exactness || noise) entry.others.push_back(ask(a_case, entry.order, "float64", jobs));
  if (!noise) return;
  entry.noise_due = true;
  for (const char* precision : {"perturbed:1", "perturbed:2"})
    entry.others.push_back(ask(a_case, entry.order, precision, jobs));
  // A testee that does not say in which order it adds may add in any.
  if (a_case.world > 2 && declared_order() == "unspecified")
    entry.others.push_back(ask(a_case, entry.order == "rank" ? "ring" : "rank", "native", jobs));
}

bool Pipeline::answered(const Entry& entry) const {
  if (!entry.run || entry.order_changed) return false;
  // A run that ended badly is judged without any truth.
  if (!all_done(*entry.run)) return true;
  const std::vector<std::string> keys = entry.keys();
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return references_.at(key).truth.has_value(); });
}

void Pipeline::release(Entry& entry) {
  for (const std::string& key : entry.keys()) {
    auto found = references_.find(key);
    // An answer is kept while somebody waits for it; one that nobody asked for again must not fill the
    // memory.
    if (--found->second.users == 0 && found->second.truth && !keep_answers_) references_.erase(found);
  }
  entry.native = "";
  entry.others.clear();
}

// Where the reference cannot run the case, there is none and upstream's tolerance stands alone.
std::optional<Noise> Pipeline::noise_of(const Entry& entry) const {
  if (!entry.noise_due) return std::nullopt;
  const OwnedTruth& native = *references_.at(entry.native).truth;
  if (native.problem) return Noise();
  std::vector<const Evidence*> others;
  for (const std::string& key : entry.others) {
    const OwnedTruth& other = *references_.at(key).truth;
    if (!other.problem) others.push_back(&other.evidence);
  }
  return Noise(native.evidence, others);
}

// Without what is right in other editions only: expectations, and a recording from the other side of a
// change.
Case Pipeline::as_judged(const Case& written) {
  Case a_case = in_edition(written, options_.edition);
  if (options_.record || !truths_needed(a_case).golden) return a_case;
  const auto recorded = edition_of(golden_.version_of(written));
  if (!recorded || !changed_between(written, *recorded, options_.edition)) return a_case;
  for (Json& expectation : a_case.expect) {
    const auto equal = expectation.find("equal");
    if (equal == expectation.end()) continue;
    Json& truths = equal->at("to");
    truths.erase(std::remove(truths.begin(), truths.end(), "golden"), truths.end());
  }
  return a_case;
}

// Nothing where the reference computes the same in float64, or where the lane does not say so.
std::optional<Verdict> Pipeline::inexactness(const Entry& entry) const {
  const Case& a_case = *entry.a_case;
  if (!proves_exactness(a_case, options_.record)) return std::nullopt;
  const OwnedTruth& native = *references_.at(entry.native).truth;
  const OwnedTruth& widened = *references_.at(entry.others.front()).truth;
  for (const OwnedTruth* truth : {&native, &widened}) {
    if (truth->problem) return setup_error(a_case, truth->problem->code, truth->problem->summary);
  }
  const auto inexact = first_inexact(a_case, native.evidence, widened.evidence);
  if (!inexact) return std::nullopt;
  Verdict verdict = setup_error(a_case, inexact->code, "not recorded: " + inexact->summary);
  verdict.divergence = inexact->divergence;
  return verdict;
}

Verdict Pipeline::record(Entry& entry, const Case& a_case, Truths& truths, OwnedTruth& golden) {
  if (!may_record_) {
    if (const auto objection = golden_.objection(entry.run->hello))
      throw UsageError("nothing is recorded: " + *objection);
    may_record_ = true;
  }
  Verdict verdict;
  auto evidence = evidence_for_recording(a_case, *entry.run, verdict);
  if (!evidence) return verdict;
  if (auto inexact = inexactness(entry)) return *inexact;
  if (truths.noise) {
    if (auto noisy = first_noisy(*entry.a_case, *truths.noise)) {
      verdict = setup_error(*entry.a_case, noisy->code, "not recorded: " + noisy->summary);
      verdict.divergence = noisy->divergence;
      return verdict;
    }
  }
  golden.evidence = std::move(*evidence);
  golden.reduction_order = entry.run->hello.value("reduction_order", "unspecified");
  truths.golden = golden.truth();
  verdict = judge(a_case, *entry.run, truths);
  if (verdict.code != "truth_nan") {
    golden_.save(a_case, golden.evidence, entry.run->hello);
    ++recorded_;
  }
  return verdict;
}

void Pipeline::conclude(Entry& entry, const Judged& judged) {
  const Case a_case = as_judged(*entry.a_case);
  Truths truths;
  OwnedTruth golden;
  Verdict verdict;
  const TruthsNeeded needed = truths_needed(a_case);
  const bool done = all_done(*entry.run);
  const std::optional<Noise> noise = done ? noise_of(entry) : std::nullopt;
  if (noise) truths.noise = &*noise;
  if (done && saves_checkpoint(a_case)) saved_.insert(a_case.id);
  if (done && !entry.native.empty()) truths.reference = references_.at(entry.native).truth->truth();
  if (options_.record && needed.golden && done) {
    verdict = record(entry, a_case, truths, golden);
  } else if (const auto inexact = done && needed.reference ? inexactness(entry) : std::nullopt) {
    verdict = *inexact;  // its lane is a claim, though nobody can record it
  } else {
    if (done && needed.golden) {
      golden = golden_.load(a_case);
      truths.golden = golden.truth();
    }
    verdict = judge(a_case, *entry.run, truths);
  }
  if (verdict.noise_due && !entry.noise_due) {
    entry.noise_due = true;  // the question is put, and the case judged again, when this round is over
    return;
  }
  release(entry);
  judged(*entry.a_case, verdict, *entry.run);
  entry.run.reset();
}

Session::EndedBadly Pipeline::ended_badly() {
  return [this](const Testee& testee, CaseRun&& run) {
    if (&testee == &testee_)
      testee_troubles_.push_back(run.blame.empty() ? "a rank ended badly between two cases" : run.blame);
  };
}

void Pipeline::run_cases(const std::vector<Entry*>& entries, const Judged& judged) {
  std::vector<Job> jobs;
  std::map<const Case*, Entry*> by_case;
  std::map<std::string, std::vector<Entry*>> waiting;
  for (Entry* entry : entries) {
    by_case[entry->a_case] = entry;
    if (!entry->run) jobs.push_back({&testee_, entry->a_case, nullptr});
  }
  for (Entry* entry : entries) {
    ask(*entry, jobs);
    for (const std::string& key : entry->keys()) waiting[key].push_back(entry);
  }
  if (!keep_answers_)
    std::erase_if(references_, [](const auto& each) { return each.second.users == 0 && each.second.truth; });
  for (Entry* entry : entries) {
    if (entry->run && answered(*entry)) conclude(*entry, judged);
  }
  session_.run(
      jobs,
      [&](const Job& job, CaseRun&& run) {
        if (job.testee == &testee_) {
          Entry& entry = *by_case.at(job.a_case);
          entry.run = std::move(run);
          note_start(*entry.run);
          if (hello_.is_null() && entry.run->hello.is_object()) hello_ = entry.run->hello;
          entry.order_changed = !entry.native.empty() && order_for(*entry.a_case) != entry.order;
          if (answered(entry)) conclude(entry, judged);
          return;
        }
        Reference& reference = references_.at(job.key);
        reference.truth =
            truth_from_oracle(*job.a_case, run, job.oracle.at("reduction_order").get<std::string>());
        if (reference.users == 0 && !keep_answers_) {
          references_.erase(job.key);
          return;
        }
        for (Entry* entry : waiting[job.key]) {
          if (entry->run && answered(*entry)) conclude(*entry, judged);
        }
      },
      ended_badly());
  std::vector<Entry*> again;
  for (Entry* entry : entries) {
    if (!entry->run) continue;
    // Only where the first rank group never said hello: the oracle is asked again, in the testee's order.
    if (entry->order_changed) release(*entry);
    again.push_back(entry);
  }
  if (!again.empty()) run_cases(again, judged);
}

void Pipeline::run(const std::vector<const Case*>& cases, const Judged& judged) {
  if (cases.empty()) return;
  std::vector<Entry> entries(cases.size());
  std::vector<Entry*> all;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    entries[i].a_case = cases[i];
    all.push_back(&entries[i]);
  }
  for (std::vector<Entry*>& round : rounds_of(all)) {
    std::erase_if(round, [&](Entry* entry) {
      if (has_checkpoint(*entry->a_case)) return false;
      judged(*entry->a_case, no_checkpoint(*entry->a_case), CaseRun{});
      return true;
    });
    for (int attempt = 0; attempt < start_attempts && hello_.is_null() && !round.empty(); ++attempt)
      run_first_case(round, judged);
    if (hello_.is_null() && !start_failure_.empty()) {
      give_up(round, judged);
    } else if (!round.empty()) {
      run_cases(round, judged);
    }
  }
}

// Who loads a checkpoint comes after the one who saves it.
std::vector<std::vector<Pipeline::Entry*>> Pipeline::rounds_of(const std::vector<Entry*>& entries) const {
  std::map<std::string, const Case*> by_id;
  for (const Entry* entry : entries) by_id[entry->a_case->id] = entry->a_case;
  std::vector<std::vector<Entry*>> rounds;
  for (Entry* entry : entries) {
    std::size_t depth = 0;
    for (auto before = by_id.find(entry->a_case->continues); before != by_id.end();
         before = by_id.find(before->second->continues))
      ++depth;
    if (rounds.size() <= depth) rounds.resize(depth + 1);
    rounds[depth].push_back(entry);
  }
  return rounds;
}

bool Pipeline::has_checkpoint(const Case& a_case) const {
  return a_case.continues.empty() || saved_.contains(a_case.continues) ||
         holds_checkpoint(options_.session.checkpoints, a_case.continues);
}

void Pipeline::note_start(const CaseRun& run) {
  if (start_failure_.empty() && never_started(run)) start_failure_ = run.case_id + ": " + run.blame;
}

// The same failure once more for every case would say nothing new, and take its time.
void Pipeline::give_up(std::vector<Entry*>& entries, const Judged& judged) {
  for (Entry* entry : entries) {
    if (entry->run) {
      conclude(*entry, judged);
    } else {
      judged(*entry->a_case,
             setup_error(*entry->a_case, "testee_does_not_start",
                         "not tried, because the testee did not start for " + start_failure_),
             CaseRun{});
    }
  }
}

// The order of reductions that the testee declares in its hello decides what the oracle is asked, so one case
// runs first; where the order cannot matter the oracle works beside it already.
void Pipeline::run_first_case(std::vector<Entry*>& entries, const Judged& judged) {
  auto first = std::min_element(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->run.has_value(), a->a_case->world) < std::pair(b->run.has_value(), b->a_case->world);
  });
  if ((*first)->run) return;
  Entry* alone = *first;
  if (alone->a_case->world > 2) {
    session_.run(
        {{&testee_, alone->a_case, nullptr}},
        [&](const Job&, CaseRun&& run) {
          alone->run = std::move(run);
          note_start(*alone->run);
          if (alone->run->hello.is_object()) hello_ = alone->run->hello;
        },
        ended_badly());
    return;
  }
  entries.erase(first);
  keep_answers_ = true;  // others may have the same question
  run_cases({alone}, judged);
  keep_answers_ = false;
}

void Pipeline::close() {
  session_.close(ended_badly(), &testee_);
}

}  // namespace fsdp_cts
