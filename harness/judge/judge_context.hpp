// Everything that an expectation or a law may look at.
#pragma once

#include <set>

#include "harness/judge/evidence.hpp"
#include "harness/judge/finding.hpp"
#include "harness/judge/program_map.hpp"
#include "harness/judge/sharding_plan.hpp"
#include "harness/judge/truths.hpp"
#include "harness/runner/run.hpp"

namespace fsdp_cts {

struct JudgeContext {
  const Case& a_case;
  const ProgramMap& program;
  const ShardingPlan& plan;
  const CaseRun& run;
  const Evidence& testee;
  const Truths& truths;
  std::string reduction_order() const {
    return run.hello.value("reduction_order", std::string("unspecified"));
  }
};

// The part of an expectation that says where it looks: `label`, `iteration`, `model` (LANGUAGE.md §7).
class Selection {
 public:
  Selection(const Json& expectation, const ProgramMap& program);
  bool takes(const Place& place) const;
  bool takes_model(const std::string& model) const { return !model_ || *model_ == model; }
  bool takes_step(int step) const;

 private:
  const ProgramMap& program_;
  std::optional<std::string> label_;
  std::optional<int> iteration_;
  std::optional<std::string> model_;
};

// The testee's selected facts of one kind, in program order, ranks together.
std::vector<std::pair<Place, const Json*>> selected_facts(const JudgeContext& context,
                                                          const Selection& selection,
                                                          const std::string& what);

// The ranks that an expectation's `ranks` names; all where it names none.
std::set<int> ranks_concerned(const Json& arguments, const Case& a_case);

// A check that failed: its code, a sentence, and what was compared.
struct Failure {
  std::string code;
  std::string text;
  Json actual = nullptr;
  Json expected = nullptr;
};
Finding failure(const JudgeContext& context, const Place& place, Failure failed);

// For a check that found nothing to look at, and so has proved nothing.
void nothing_observed(Outcome& outcome, const std::string& what);

}  // namespace fsdp_cts
