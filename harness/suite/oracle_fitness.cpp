#include "harness/suite/oracle_fitness.hpp"

#include <map>

#include "harness/judge/fitness.hpp"
#include "harness/judge/judge.hpp"

namespace fsdp_cts {
namespace {

Unfit verdict_on(const Case& a_case, const OwnedTruth& native, const OwnedTruth& widened) {
  for (const OwnedTruth* truth : {&native, &widened}) {
    if (truth->problem) return {truth->problem->summary, true};
  }
  return {why_unfit(a_case, native.evidence, widened.evidence).value_or("")};
}

}  // namespace

std::vector<Unfit> why_unfit_each(const std::vector<const Case*>& cases, const Testee& oracle,
                                  Session& session) {
  std::vector<Job> jobs;
  std::map<const Case*, std::size_t> index;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    index[cases[i]] = i;
    for (const char* precision : {"native", "float64"})
      jobs.push_back({&oracle, cases[i], {{"reduction_order", exact_order}, {"precision", precision}}});
  }
  std::vector<Unfit> unfit(cases.size());
  // A truth is kept until the other one of its case is there.
  std::map<std::size_t, OwnedTruth> natives, widened;
  session.run(jobs, [&](const Job& job, CaseRun&& run) {
    const std::size_t i = index.at(job.a_case);
    (job.oracle.at("precision") == "native" ? natives : widened)[i] =
        truth_from_oracle(*job.a_case, run, exact_order);
    if (!natives.contains(i) || !widened.contains(i)) return;
    unfit[i] = verdict_on(*job.a_case, natives[i], widened[i]);
    natives.erase(i);
    widened.erase(i);
  });
  return unfit;
}

}  // namespace fsdp_cts
