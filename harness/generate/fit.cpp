#include "harness/generate/fit.hpp"

#include <stdexcept>

#include "harness/judge/fitness.hpp"
#include "harness/judge/judge.hpp"
#include "harness/scenario/catalogue/load.hpp"
#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts::generate {
namespace {

constexpr const char* why_drawn =
    "Drawn at random from what must work, to find what nobody thought of. Nothing in it rounds, so every bit "
    "counts.";
// Exact sums do not depend on their order.
constexpr const char* order = "rank";

}  // namespace

Drawn written(const Origin& origin, Sketch sketch, const std::string& why) {
  Drawn drawn{origin, std::move(sketch), {}, {}};
  drawn.text = scenario_text(drawn.sketch, origin, why.empty() ? why_drawn : why);
  Mistakes mistakes;
  std::vector<Case> cases = load_scenario(drawn.text, scenario_id(origin), {}, mistakes);
  try {
    mistakes.throw_if_any();
  } catch (const ScenarioError& error) {
    throw std::logic_error(std::string("a drawn scenario has mistakes:\n") + error.what() + "\n" +
                           drawn.text);
  }
  drawn.a_case = std::move(cases.at(0));
  return drawn;
}

std::vector<std::string> fit_data(std::vector<Drawn>& drawn, int draws, const Testee& oracle,
                                  Session& session) {
  std::vector<std::string> unfit(drawn.size(), "not asked");
  for (int draw = 0; draw < draws; ++draw) {
    std::vector<Job> jobs;
    std::map<const Case*, std::size_t> asked;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      if (unfit[i].empty()) continue;
      if (draw > 0) {
        ++drawn[i].sketch.data_seed;
        drawn[i] = written(drawn[i].origin, drawn[i].sketch, "");
      }
      asked[&drawn[i].a_case] = i;
      for (const char* precision : {"native", "float64"})
        jobs.push_back({&oracle, &drawn[i].a_case, {{"reduction_order", order}, {"precision", precision}}});
    }
    if (jobs.empty()) break;
    std::map<std::size_t, OwnedTruth> natives, widened;
    session.run(jobs, [&](const Job& job, CaseRun&& run) {
      const std::size_t i = asked.at(job.a_case);
      (job.oracle.at("precision") == "native" ? natives : widened)[i] =
          truth_from_oracle(*job.a_case, run, order);
      if (!natives.contains(i) || !widened.contains(i)) return;
      const OwnedTruth &native = natives[i], &wide = widened[i];
      unfit[i] = native.problem ? native.problem->summary
                 : wide.problem ? wide.problem->summary
                                : why_unfit(*job.a_case, native.evidence, wide.evidence).value_or("");
      natives.erase(i);
      widened.erase(i);
    });
  }
  return unfit;
}

}  // namespace fsdp_cts::generate
