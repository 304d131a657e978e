// equal: what the testee observed agrees with the reference and with the golden recording, and these with
// each other.
#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/expectations/fact_difference.hpp"
#include "harness/judge/expectations/kinds.hpp"
#include "harness/judge/expectations/tensor_difference.hpp"
#include "harness/protocol/pattern.hpp"

namespace fsdp_cts {
namespace {

struct NamedTruth {
  std::string name;
  const Truth* truth;
};

class Equal {
 public:
  Equal(const Json& arguments, const Selection& selection, const JudgeContext& context, Outcome& outcome)
      : selection_(selection),
        context_(context),
        outcome_(outcome),
        what_(strings_of(arguments.at("what"))),
        only_(arguments.value("only", std::string(".*"))),
        tolerance_(arguments.value("tolerance", Json())),
        check_dtype_(arguments.value("check_dtype", true)) {
    order_sensitive_ = arguments.value("order_sensitive", false) && context.a_case.world > 2;
    for (const std::string& name : strings_of(arguments.at("to"))) {
      const Truth& truth = context.truths.named(name);
      if (truth.problem) {
        outcome.findings.push_back(*truth.problem);
        continue;
      }
      if (!truth.evidence) {
        outcome.findings.push_back(
            {VerdictKind::setup_error, name + "_missing", "there is no " + name + " to compare with"});
        continue;
      }
      // A recording whose reductions added in another order says nothing about this testee's last bits.
      if (name == "golden" && order_sensitive_ && truth.reduction_order != context.reduction_order()) {
        ++outcome.counts.truths.golden_left_out;
        continue;
      }
      truths_.push_back({name, &truth});
      ++(name == "golden" ? outcome.counts.truths.golden : outcome.counts.truths.reference);
    }
    // The reference runs in the testee's order; the recording may speak about it only where order cannot
    // matter or is the same.
    truths_comparable_ = truths_.size() == 2 &&
                         (!order_sensitive_ ||
                          context.truths.golden.reduction_order == context.truths.reference.reduction_order);
  }

  void run() {
    if (truths_.empty()) return no_truth_left();
    const long tensors_before = outcome_.counts.tensors;
    compare_values();
    compare_facts();
    compared_ = outcome_.counts.tensors > tensors_before || facts_ > 0;
    finish();
  }

 private:
  // A testee that nobody judged has not passed. A truth that is missing or has a problem is reported by
  // the constructor; that finding is the worse one and decides.
  void no_truth_left() {
    outcome_.findings.push_back(
        {VerdictKind::unresolved, "no_truth_left",
         fmt::format("nobody judged {}: the recording was made in reduction order '{}', this implementation "
                     "declares '{}', and the reference is not asked",
                     fmt::join(what_, ", "), context_.truths.golden.reduction_order,
                     context_.reduction_order())});
  }

  bool wanted(const Place& place) const {
    return selection_.takes(place) && std::find(what_.begin(), what_.end(), place.what) != what_.end() &&
           only_.found_in(place.name);
  }
  // Places in program order; inside one step in the order the scenario names them.
  template <class Entries>
  std::vector<const Place*> wanted_places(const Entries& entries) const {
    std::vector<const Place*> places;
    for (const auto& [place, value] : entries) {
      if (wanted(place)) places.push_back(&place);
    }
    auto position = [&](const Place* place) {
      return std::pair(place->step, std::find(what_.begin(), what_.end(), place->what) - what_.begin());
    };
    std::stable_sort(places.begin(), places.end(), [&](auto a, auto b) { return position(a) < position(b); });
    return places;
  }

  void compare_values() {
    for (const Place* place : wanted_places(context_.testee.values))
      compare_value(*place, context_.testee.values.at(*place));
    for (const NamedTruth& truth : truths_) {
      for (const Place* place : wanted_places(truth.truth->evidence->values)) {
        if (const auto missing = unanswered(*place)) {
          fail(
              failure(context_, *missing,
                      {"missing_value", fmt::format("{}: the {} has it, the implementation did not answer it",
                                                    describe(*missing), truth.name)}));
        }
      }
    }
  }

  // Where the testee owes a value that a truth has there. What is the same on all ranks is due from each, unless
  // it was assembled from the shards of all.
  std::optional<Place> unanswered(const Place& place) const {
    if (place.rank && !context_.program.takes_part(place.step, *place.rank)) return std::nullopt;
    const auto answers = counterparts(context_.testee.values, place);
    if (answers.empty()) return place;
    if (place.rank || !answers.front()->rank) return std::nullopt;
    for (int rank = 0; rank < context_.a_case.world; ++rank) {
      if (!context_.program.takes_part(place.step, rank) ||
          std::any_of(answers.begin(), answers.end(), [&](const Place* each) { return each->rank == rank; }))
        continue;
      Place missing = place;
      missing.rank = rank;
      return missing;
    }
    return std::nullopt;
  }

  void compare_value(const Place& place, const Value& actual) {
    if (truths_comparable_ && disagreement(place)) return;
    bool counted = false;
    for (const NamedTruth& truth : truths_) {
      const auto& values = truth.truth->evidence->values;
      const auto others = counterparts(values, place);
      if (others.empty()) {
        if (nobody_has(place)) {
          fail(failure(
              context_, place,
              {"extra_value",
               fmt::format("{}: the implementation has it, and none of the truths does", describe(place))}));
          return;
        }
        incomplete(truth, place);
        continue;
      }
      for (const Place* other : others) {
        const Value& expected = values.at(*other);
        Difference difference;
        if (!presence_differs(actual, expected) && !actual.none) {
          difference =
              compare(actual.tensor, expected.tensor, tolerance(place, actual, expected), check_dtype_);
          if (!counted) count_comparison(outcome_, difference);
          if (!difference) outcome_.max_noise = std::max(outcome_.max_noise, difference.max_noise);
          counted = true;
        }
        if (!difference && !presence_differs(actual, expected)) continue;
        note_noise_due(difference);
        Place shown = place;
        if (!shown.rank) shown.rank = other->rank;
        Finding finding = tensor_failure(context_, shown, actual, expected, difference, truth.name);
        if (difference.kind == Difference::Kind::value) {
          add_neighbours(finding, place, difference.index);
          if (order_sensitive_ && context_.reduction_order() == "unspecified")
            finding.summary +=
                "; the testee does not say in which order its reductions add: if it is the order of ranks or "
                "Gloo's ring, declare reduction_order \"rank\" or \"ring\" in hello and be judged by it";
        }
        fail(std::move(finding));
        return;
      }
    }
  }

  // Truths that have other names there, and none has this one: it is the implementation's. A truth that has none at all did not
  // answer, which is its own fault.
  bool nobody_has(const Place& place) const {
    return std::all_of(truths_.begin(), truths_.end(), [&](const NamedTruth& truth) {
      const auto& values = truth.truth->evidence->values;
      return counterparts(values, place).empty() &&
             std::any_of(values.begin(), values.end(), [&](const auto& entry) {
               const Place& other = entry.first;
               return other.step == place.step && other.what == place.what && other.model == place.model;
             });
    });
  }

  // Upstream's or the scenario's, and in the tolerance lane the noise of the tensor beside it.
  Tolerance tolerance(const Place& place, const Value& a, const Value& b) const {
    Tolerance allowed = tolerance_from(tolerance_, context_.a_case.lane, a.tensor.dtype, b.tensor.dtype);
    if (counts_noise(allowed) && context_.truths.noise) allowed.noise = context_.truths.noise->at(place);
    return allowed;
  }
  bool counts_noise(const Tolerance& allowed) const {
    return !allowed.exact && context_.a_case.lane == Lane::tolerance;
  }
  void note_noise_due(const Difference& difference) {
    if (difference.kind == Difference::Kind::value && counts_noise(difference.tolerance) &&
        !context_.truths.noise)
      outcome_.noise_due = true;
  }

  // What each truth says about the very element, so that a person sees at once who stands alone.
  void add_neighbours(Finding& finding, const Place& place, std::int64_t index) const {
    for (const char* name : {"golden", "reference"}) {
      const Truth& truth = context_.truths.named(name);
      if (!truth.evidence) continue;
      const auto others = counterparts(truth.evidence->values, place);
      if (others.empty()) continue;
      const Value& value = truth.evidence->values.at(*others.front());
      if (!value.none && index < value.tensor.numel())
        finding.divergence[name] = number(value.tensor.element(index));
    }
  }

  bool disagreement(const Place& place) {
    const auto& reference = context_.truths.reference.evidence->values;
    const auto& golden = context_.truths.golden.evidence->values;
    for (const Place* of_golden : counterparts(golden, place)) {
      for (const Place* of_reference : counterparts(reference, *of_golden)) {
        const Value& r = reference.at(*of_reference);
        const Value& g = golden.at(*of_golden);
        Difference difference;
        if (!presence_differs(r, g) && !r.none)
          difference = compare(r.tensor, g.tensor, tolerance(place, r, g), check_dtype_);
        if (!difference && !presence_differs(r, g)) continue;
        note_noise_due(difference);
        Finding finding = tensor_failure(context_, *of_golden, r, g, difference, "golden recording");
        finding.kind = VerdictKind::setup_error;
        finding.code = "truths_disagree";
        finding.summary =
            "the suite's own truths disagree, so nobody is judged: reference says " + finding.summary;
        finding.divergence.erase("rank");
        add_neighbours(finding, place, difference.index);
        disagreements_.push_back(std::move(finding));
        return true;
      }
    }
    return false;
  }

  void compare_facts() {
    for (const Place* place : wanted_places(context_.testee.facts)) {
      for (const NamedTruth& truth : truths_) {
        const Json* expected = counterpart_fact(*truth.truth->evidence, *place);
        if (!expected) {
          incomplete(truth, *place);
          continue;
        }
        ++facts_;
        if (auto difference = fact_difference(place->what, context_.testee.facts.at(*place), *expected)) {
          fail(failure(context_, *place,
                       {"fact",
                        fmt::format("{}: {} is {} where the {} has {}", describe(*place), difference->where,
                                    difference->actual.dump(), truth.name, difference->expected.dump()),
                        difference->actual, difference->expected}));
        }
      }
    }
  }

  void incomplete(const NamedTruth& truth, const Place& place) {
    Finding finding = failure(context_, place,
                              {truth.name + "_incomplete",
                               fmt::format("the {} does not say what {} is", truth.name, describe(place))});
    finding.kind = VerdictKind::setup_error;
    disagreements_.push_back(std::move(finding));
  }
  void fail(Finding finding) { failures_.push_back(std::move(finding)); }

  // One finding per expectation: the first in program order, with how many more there are.
  void keep_first(std::vector<Finding>& findings) {
    if (findings.empty()) return;
    auto first = std::min_element(findings.begin(), findings.end(),
                                  [](const Finding& a, const Finding& b) { return a.step < b.step; });
    if (findings.size() > 1) first->summary += fmt::format("; and {} more", findings.size() - 1);
    outcome_.findings.push_back(std::move(*first));
  }
  void finish() {
    keep_first(disagreements_);
    keep_first(failures_);
    if (!compared_ && disagreements_.empty() && failures_.empty())
      nothing_observed(outcome_, fmt::format("{}", fmt::join(what_, ", ")));
  }

  const Selection& selection_;
  const JudgeContext& context_;
  Outcome& outcome_;
  std::vector<std::string> what_;
  Pattern only_;
  Json tolerance_;
  bool check_dtype_;
  bool order_sensitive_ = false;  // from three ranks on, where the scenario says so
  std::vector<NamedTruth> truths_;
  bool truths_comparable_ = false;
  std::vector<Finding> failures_, disagreements_;
  long facts_ = 0;
  bool compared_ = false;
};

}  // namespace

void check_equal(const Json& arguments, const Selection& selection, const JudgeContext& context,
                 Outcome& outcome) {
  Equal(arguments, selection, context, outcome).run();
}

}  // namespace fsdp_cts
