#include "harness/judge/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/judge/assembly.hpp"
#include "harness/judge/expectations/kinds.hpp"
#include "harness/judge/laws/laws.hpp"
#include "harness/judge/rank_ends.hpp"
#include "harness/protocol/utf8.hpp"

namespace fsdp_cts {
namespace {

// The worst finding decides; among equals the first in program order, those about the whole case last, then
// the first found.
const Finding& decisive(const std::vector<Finding>& findings) {
  auto position = [](const Finding& finding) {
    return finding.step < 0 ? std::numeric_limits<int>::max() : finding.step;
  };
  return *std::min_element(findings.begin(), findings.end(), [&](const Finding& a, const Finding& b) {
    if (a.kind != b.kind) return a.kind > b.kind;
    return position(a) < position(b);
  });
}

// Where attempts failed on any rank. A testee that claims a failure to be excused is convicted by what the
// scenario expects of the attempt.
FailedAttempts failed_attempts(const CaseRun& run) {
  FailedAttempts failed;
  for (const Observation& observation : run.observations) {
    if (!observation.entries.is_array()) continue;
    for (const Json& entry : observation.entries) {
      if (!entry.is_object() || entry.value("what", Json()) != "attempt" ||
          !entry.value("error", Json()).is_object())
        continue;
      const Json step = entry["error"].value("step", Json());
      if (!step.is_number_integer()) continue;
      auto [end, fresh] = failed.try_emplace(observation.step, step.get<int>());
      end->second = std::min(end->second, step.get<int>());
    }
  }
  return failed;
}

// Bytes; a testee may have put any text of its own into it.
constexpr std::size_t max_summary_bytes = 2000;

void conclude(Verdict& verdict, const Outcome& outcome) {
  verdict.counts = outcome.counts;
  verdict.max_ulp = outcome.max_ulp;
  verdict.max_noise = outcome.max_noise;
  verdict.noise_due = outcome.noise_due;
  if (outcome.findings.empty()) {
    verdict.kind = VerdictKind::pass;
    verdict.code = "pass";
    return;
  }
  const Finding& finding = decisive(outcome.findings);
  verdict.kind = finding.kind;
  verdict.code = finding.code;
  verdict.summary = shortened(finding.summary, max_summary_bytes);
  verdict.divergence = finding.divergence;
}

Verdict verdict_for(const Case& a_case, const CaseRun& run) {
  Verdict verdict;
  verdict.case_id = a_case.id;
  verdict.seconds = run.seconds.count();
  return verdict;
}

// A pass that looked at too little is no pass. Whoever loads a case fills in what is due by default.
void check_minimum(const Case& a_case, Outcome& outcome) {
  const Json& minimum = a_case.minimum;
  auto due = [&](const char* key, long otherwise) {
    return minimum.is_object() ? minimum.value(key, otherwise) : otherwise;
  };
  auto check = [&](const char* what, long actual, long wanted) {
    if (actual >= wanted) return;
    Finding finding{
        VerdictKind::unresolved, "too_little_compared",
        fmt::format("{} {} compared, at least {} are due: nothing is proved", actual, what, wanted)};
    finding.divergence = {
        {"expectation", "minimum"}, {"what", what}, {"actual", actual}, {"expected", wanted}};
    outcome.findings.push_back(std::move(finding));
  };
  check("elements", outcome.counts.elements, due("elements", 0));
  check("tensors", outcome.counts.tensors, due("tensors", 0));
  check("collectives", outcome.counts.collectives, due("collectives", 0));
  if (a_case.expect.empty()) {
    outcome.findings.push_back(
        {VerdictKind::unresolved, "nothing_checked", "the scenario expects nothing of this case"});
  }
}

void check_law(const Law& law, const JudgeContext& context, Outcome& outcome) {
  const std::size_t before = outcome.findings.size();
  law.check(context, outcome);
  ++outcome.counts.checks;
  for (std::size_t i = before; i < outcome.findings.size(); ++i) {
    Json divergence{{"expectation", std::string("law: ") + law.name}};
    divergence.update(outcome.findings[i].divergence);
    outcome.findings[i].divergence = std::move(divergence);
  }
}

void judge_answers(const Case& a_case, const CaseRun& run, const Truths& truths, Outcome& outcome) {
  const ProgramMap program(a_case.program, failed_attempts(run));
  const ShardingPlan plan(a_case);
  std::vector<Finding> of_assembly;
  const Evidence testee = assemble_testee(a_case, program, plan, run, of_assembly);
  const JudgeContext context{a_case, program, plan, run, testee, truths};
  // Failure in this order: that a rank did not answer explains why its shards are missing, and that explains
  // the rest.
  check_law(laws().front(), context, outcome);
  std::move(of_assembly.begin(), of_assembly.end(), std::back_inserter(outcome.findings));
  std::for_each(laws().begin() + 1, laws().end(), [&](const Law& law) { check_law(law, context, outcome); });
  for (const Json& expectation : a_case.expect) check_expectation(expectation, context, outcome);
  check_minimum(a_case, outcome);
}

}  // namespace

Verdict judge(const Case& a_case, const CaseRun& run, const Truths& truths) {
  Verdict verdict = verdict_for(a_case, run);
  Outcome outcome;
  try {
    if (check_rank_ends(a_case, run, outcome)) judge_answers(a_case, run, truths, outcome);
  } catch (const std::exception& error) {
    outcome.findings.push_back({VerdictKind::setup_error, "judge",
                                fmt::format("the judge could not evaluate this case: {}", error.what())});
  }
  conclude(verdict, outcome);
  return verdict;
}

std::optional<Evidence> evidence_for_recording(const Case& a_case, const CaseRun& run, Verdict& verdict) {
  verdict = verdict_for(a_case, run);
  Outcome outcome;
  std::optional<Evidence> evidence;
  if (check_rank_ends(a_case, run, outcome)) {
    const ProgramMap program(a_case.program, failed_attempts(run));
    const ShardingPlan plan(a_case);
    evidence = assemble_testee(a_case, program, plan, run, outcome.findings);
  }
  conclude(verdict, outcome);
  if (!outcome.findings.empty()) evidence.reset();
  return evidence;
}

OwnedTruth truth_from_oracle(const Case& a_case, const CaseRun& run, const std::string& reduction_order) {
  OwnedTruth truth;
  truth.reduction_order = reduction_order;
  auto problem = [&](const char* code, const std::string& text) {
    truth.problem = Finding{VerdictKind::setup_error, code, text};
  };
  for (const RankReport& rank : run.ranks) {
    if (rank.end == RankEnd::done) continue;
    if (rank.end == RankEnd::unsupported) {
      problem("reference_incomplete", "the reference cannot run this case: " + rank.detail);
    } else {
      problem("reference_failed", fmt::format("the reference itself failed at {} (step {}): {}",
                                              rank.last_verb, rank.last_step, rank.detail));
    }
    return truth;
  }
  if (run.ranks.empty()) {
    problem("reference_failed", "the reference gave no answer");
    return truth;
  }
  std::vector<Finding> findings;
  truth.evidence = assemble_oracle(ProgramMap(a_case.program), run, findings);
  for (const DeviceUse& use : run.uses) truth.evidence.memory[{use.step, use.rank}] = use.bytes_taken();
  if (!findings.empty()) truth.problem = findings.front();
  return truth;
}

Verdict skipped(const Case& a_case, const std::string& reason) {
  Verdict verdict;
  verdict.case_id = a_case.id;
  verdict.kind = VerdictKind::skipped;
  verdict.code = "skipped";
  verdict.summary = reason;
  return verdict;
}

Verdict setup_error(const Case& a_case, const std::string& code, const std::string& reason) {
  Verdict verdict;
  verdict.case_id = a_case.id;
  verdict.kind = VerdictKind::setup_error;
  verdict.code = code;
  verdict.summary = reason;
  return verdict;
}

}  // namespace fsdp_cts
