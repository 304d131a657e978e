#include "harness/cli/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/exactness.hpp"
#include "harness/judge/reference_key.hpp"

namespace fsdp_cts::cli {
namespace {

bool all_done(const CaseRun& run) {
  return !run.ranks.empty() && std::all_of(run.ranks.begin(), run.ranks.end(),
                                           [](const RankReport& rank) { return rank.end == RankEnd::done; });
}

bool proves_exactness(const Case& a_case, bool record) {
  return record && a_case.lane == Lane::exact;
}

}  // namespace

bool asks_reference(const Case& a_case, bool record) {
  return truths_needed(a_case).reference || proves_exactness(a_case, record);
}

Pipeline::Pipeline(PipelineOptions options)
    : options_(std::move(options)), session_(options_.session), golden_(options_.golden) {}

// Two summands have no order, so worlds up to 2 share one question whatever the testee declares.
std::string Pipeline::order_for(const Case& a_case) const {
  const std::string declared =
      hello_.is_object() ? hello_.value("reduction_order", "unspecified") : "unspecified";
  return a_case.world > 2 && declared == "ring" ? "ring" : "rank";
}

std::string Pipeline::ask(const Case& a_case, const std::string& order, const std::string& precision,
                          std::vector<Job>& jobs) {
  const std::string key = reference_key(a_case, order, precision);
  auto [reference, fresh] = references_.try_emplace(key);
  ++reference->second.users;
  if (fresh)
    jobs.push_back({&options_.oracle, &a_case, {{"reduction_order", order}, {"precision", precision}}});
  return key;
}

void Pipeline::ask(Entry& entry, std::vector<Job>& jobs) {
  if (!asks_reference(*entry.a_case, options_.record)) return;
  entry.order = order_for(*entry.a_case);
  entry.misasked = false;
  entry.native = ask(*entry.a_case, entry.order, "native", jobs);
  if (proves_exactness(*entry.a_case, options_.record))
    entry.widened = ask(*entry.a_case, entry.order, "float64", jobs);
}

bool Pipeline::answered(const Entry& entry) const {
  if (!entry.run || entry.misasked) return false;
  // A run that ended badly is judged without any truth.
  if (!all_done(*entry.run)) return true;
  for (const std::string& key : {entry.native, entry.widened}) {
    if (!key.empty() && !references_.at(key).truth) return false;
  }
  return true;
}

void Pipeline::release(const std::string& key) {
  if (key.empty()) return;
  auto found = references_.find(key);
  // An answer is kept while somebody waits for it; one that nobody asked for again must not fill the memory.
  if (--found->second.users == 0 && found->second.truth && !keep_answers_) references_.erase(found);
}

Verdict Pipeline::record(Entry& entry, Truths& truths, OwnedTruth& golden) {
  Verdict verdict;
  auto evidence = evidence_for_recording(*entry.a_case, *entry.run, verdict);
  if (!evidence) return verdict;
  if (!entry.widened.empty()) {
    const OwnedTruth& native = *references_.at(entry.native).truth;
    const OwnedTruth& widened = *references_.at(entry.widened).truth;
    for (const OwnedTruth* truth : {&native, &widened}) {
      if (truth->problem) return setup_error(*entry.a_case, truth->problem->code, truth->problem->summary);
    }
    if (auto inexact = first_inexact(*entry.a_case, native.evidence, widened.evidence)) {
      verdict = setup_error(*entry.a_case, inexact->code, "not recorded: " + inexact->summary);
      verdict.divergence = inexact->divergence;
      return verdict;
    }
  }
  golden.evidence = std::move(*evidence);
  golden.reduction_order = entry.run->hello.value("reduction_order", "unspecified");
  truths.golden = golden.truth();
  verdict = judge(*entry.a_case, *entry.run, truths);
  if (verdict.code != "truth_nan") {
    golden_.save(*entry.a_case, golden.evidence, golden.reduction_order);
    ++recorded_;
  }
  return verdict;
}

void Pipeline::conclude(Entry& entry, const Judged& judged) {
  const Case& a_case = *entry.a_case;
  Truths truths;
  OwnedTruth golden;
  Verdict verdict;
  const TruthsNeeded needed = truths_needed(a_case);
  const bool done = all_done(*entry.run);
  if (done && !entry.native.empty()) truths.reference = references_.at(entry.native).truth->truth();
  if (options_.record && needed.golden && done) {
    verdict = record(entry, truths, golden);
  } else {
    if (done && needed.golden) {
      golden = golden_.load(a_case);
      truths.golden = golden.truth();
    }
    verdict = judge(a_case, *entry.run, truths);
  }
  release(entry.native);
  release(entry.widened);
  judged(a_case, verdict, *entry.run);
  entry.run.reset();
}

Session::EndedBadly Pipeline::ended_badly() {
  return [this](const Testee& testee, CaseRun&& run) {
    if (&testee == &options_.testee)
      testee_troubles_.push_back(run.blame.empty() ? "a rank ended badly between two cases" : run.blame);
  };
}

void Pipeline::act_out(const std::vector<Entry*>& entries, const Judged& judged) {
  std::vector<Job> jobs;
  std::map<const Case*, Entry*> by_case;
  std::map<std::string, std::vector<Entry*>> waiting;
  for (Entry* entry : entries) {
    by_case[entry->a_case] = entry;
    if (!entry->run) jobs.push_back({&options_.testee, entry->a_case, nullptr});
  }
  for (Entry* entry : entries) {
    ask(*entry, jobs);
    for (const std::string& key : {entry->native, entry->widened}) {
      if (!key.empty()) waiting[key].push_back(entry);
    }
  }
  if (!keep_answers_)
    std::erase_if(references_, [](const auto& each) { return each.second.users == 0 && each.second.truth; });
  for (Entry* entry : entries) {
    if (entry->run && answered(*entry)) conclude(*entry, judged);
  }
  session_.run(
      jobs,
      [&](const Job& job, CaseRun&& run) {
        if (job.testee == &options_.testee) {
          Entry& entry = *by_case.at(job.a_case);
          entry.run = std::move(run);
          if (hello_.is_null() && entry.run->hello.is_object()) hello_ = entry.run->hello;
          entry.misasked = !entry.native.empty() && order_for(*entry.a_case) != entry.order;
          if (answered(entry)) conclude(entry, judged);
          return;
        }
        const std::string order = job.oracle.at("reduction_order").get<std::string>();
        const std::string key =
            reference_key(*job.a_case, order, job.oracle.at("precision").get<std::string>());
        Reference& reference = references_.at(key);
        reference.truth = truth_from_oracle(*job.a_case, run, order);
        if (reference.users == 0 && !keep_answers_) {
          references_.erase(key);
          return;
        }
        for (Entry* entry : waiting[key]) {
          if (entry->run && answered(*entry)) conclude(*entry, judged);
        }
      },
      ended_badly());
  // Only where the first rank group never said hello: the question is put again in the testee's order.
  std::vector<Entry*> again;
  for (Entry* entry : entries) {
    if (!entry->run || !entry->misasked) continue;
    release(entry->native);
    release(entry->widened);
    entry->native = entry->widened = "";
    again.push_back(entry);
  }
  if (!again.empty()) act_out(again, judged);
}

void Pipeline::run(const std::vector<const Case*>& cases, const Judged& judged) {
  if (cases.empty()) return;
  std::vector<Entry> entries(cases.size());
  std::vector<Entry*> rest;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    entries[i].a_case = cases[i];
    rest.push_back(&entries[i]);
  }
  if (hello_.is_null()) greet(rest, judged);
  act_out(rest, judged);
}

// The order of reductions that the testee declares decides what the oracle is asked. One case alone tells it;
// where order cannot matter the oracle works beside it already.
void Pipeline::greet(std::vector<Entry*>& entries, const Judged& judged) {
  auto first = std::min_element(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) {
    return a->a_case->world < b->a_case->world;
  });
  Entry* alone = *first;
  if (alone->a_case->world > 2) {
    session_.run(
        {{&options_.testee, alone->a_case, nullptr}},
        [&](const Job&, CaseRun&& run) {
          alone->run = std::move(run);
          if (alone->run->hello.is_object()) hello_ = alone->run->hello;
        },
        ended_badly());
    return;
  }
  entries.erase(first);
  keep_answers_ = true;  // others may have the same question
  act_out({alone}, judged);
  keep_answers_ = false;
}

void Pipeline::close() {
  session_.close(ended_badly());
}

}  // namespace fsdp_cts::cli
