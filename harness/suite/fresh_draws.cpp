#include "harness/suite/fresh_draws.hpp"

#include <fmt/format.h>

#include "harness/judge/fitness.hpp"
#include "harness/judge/judge.hpp"
#include "harness/judge/reference_key.hpp"
#include "harness/scenario/data/fresh_data.hpp"

namespace fsdp_cts {
namespace {

// Exact sums do not depend on their order, so one order stands for all.
constexpr const char* order = "rank";

// Cases that differ in nothing the reference computes with or is asked about: they get the same draw.
struct Question {
  std::vector<Case*> askers;
  Case drawn;
  OwnedTruth native, widened;
  std::string unfit;
};

std::string key_of(const Case& a_case, std::int64_t seed) {
  const Case first = with_fresh_data(a_case, seed, 1);
  Json differs = Json::array();
  for (const Json& expectation : first.expect) {
    if (expectation.contains("equal")) differs.push_back(expectation["equal"].at("what"));
    if (expectation.contains("differ")) differs.push_back(expectation["differ"]);
  }
  return reference_key(first, order, "native") + differs.dump();
}

std::string verdict_on(const Question& question) {
  for (const OwnedTruth* truth : {&question.native, &question.widened}) {
    if (truth->problem) return truth->problem->summary;
  }
  return why_unfit(question.drawn, question.native.evidence, question.widened.evidence).value_or("");
}

}  // namespace

FreshDraws draw_fresh_data(const std::vector<Case*>& cases, std::int64_t seed, const Testee& oracle,
                           const SessionOptions& options) {
  FreshDraws result;
  std::map<std::string, Question> open;
  for (Case* each : cases) open[key_of(*each, seed)].askers.push_back(each);
  Session session(options);
  for (int draw = 1; draw <= max_draws && !open.empty(); ++draw) {
    std::vector<Job> jobs;
    std::map<const Case*, Question*> asked;
    for (auto& [key, question] : open) {
      question.drawn = with_fresh_data(*question.askers.front(), seed, draw);
      asked[&question.drawn] = &question;
      for (const char* precision : {"native", "float64"})
        jobs.push_back({&oracle, &question.drawn, {{"reduction_order", order}, {"precision", precision}}});
    }
    session.run(jobs, [&](const Job& job, CaseRun&& run) {
      Question& question = *asked.at(job.a_case);
      (job.oracle.at("precision") == "native" ? question.native : question.widened) =
          truth_from_oracle(*job.a_case, run, order);
    });
    for (auto each = open.begin(); each != open.end();) {
      Question& question = each->second;
      question.unfit = verdict_on(question);
      question.native = question.widened = {};
      if (!question.unfit.empty()) {
        ++each;
        continue;
      }
      for (Case* asker : question.askers) {
        result.draws[asker->id] = draw;
        *asker = with_fresh_data(*asker, seed, draw);
      }
      each = open.erase(each);
    }
  }
  for (const auto& [key, question] : open) {
    for (const Case* asker : question.askers) result.unfit[asker->id] = question.unfit;
  }
  session.close();
  return result;
}

}  // namespace fsdp_cts
