#include "harness/judge/judge_context.hpp"

#include <fmt/format.h>

#include "harness/judge/entries.hpp"

namespace fsdp_cts {

Selection::Selection(const Json& expectation, const ProgramMap& program) : program_(program) {
  if (auto it = expectation.find("label"); it != expectation.end()) label_ = it->get<std::string>();
  if (auto it = expectation.find("iteration"); it != expectation.end()) iteration_ = it->get<int>();
  if (auto it = expectation.find("model"); it != expectation.end()) model_ = it->get<std::string>();
}

bool Selection::takes_step(int step) const {
  if (!program_.contains(step)) return false;
  const StepFacts& facts = program_.at(step);
  return (!label_ || facts.label == *label_) && (!iteration_ || facts.iteration == iteration_);
}

bool Selection::takes(const Place& place) const {
  return takes_step(place.step) && takes_model(place.model);
}

std::vector<std::pair<Place, const Json*>> selected_facts(const JudgeContext& context,
                                                          const Selection& selection,
                                                          const std::string& what) {
  std::vector<std::pair<Place, const Json*>> result;
  for (const auto& [place, fact] : context.testee.facts) {
    if (place.what == what && selection.takes(place)) result.emplace_back(place, &fact);
  }
  return result;
}

std::set<int> ranks_concerned(const Json& arguments, const Case& a_case) {
  const auto named = arguments.find("ranks");
  if (named != arguments.end() && named->is_array()) return named->get<std::set<int>>();
  std::set<int> all;
  for (int rank = 0; rank < a_case.world; ++rank) all.insert(rank);
  return all;
}

Finding failure(const JudgeContext& context, const Place& place, Failure failed) {
  Finding finding =
      finding_at(VerdictKind::fail, std::move(failed.code), place, context.program, std::move(failed.text));
  if (!failed.actual.is_null()) finding.divergence["actual"] = std::move(failed.actual);
  if (!failed.expected.is_null()) finding.divergence["expected"] = std::move(failed.expected);
  return finding;
}

void nothing_observed(Outcome& outcome, const std::string& what) {
  Finding finding{VerdictKind::unresolved, "nothing_observed",
                  fmt::format("no observation of {} was there to be checked", what)};
  outcome.findings.push_back(std::move(finding));
}

}  // namespace fsdp_cts
