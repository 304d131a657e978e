#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/judge/laws/laws.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

// Steps a rank did not come to: from the failing step of an attempt to the attempt's end. Which one failed is the
// testee's word, which excuses nothing outside of the attempt.
std::set<int> excused_steps(const JudgeContext& context, int rank) {
  std::set<int> excused;
  for (const auto& [place, fact] : context.testee.facts) {
    if (place.what != "attempt" || place.rank != rank) continue;
    const Json& error = fact.value("error", Json());
    if (error.is_null()) continue;
    const int failed = context.program.failed_step(place.step, error.value("step", place.step));
    for (int step = failed; step < place.step; ++step) excused.insert(step);
  }
  return excused;
}

// A model has parameters, so a list of them without items is no answer. A rank that holds nothing lists them
// without pieces.
bool is_empty_list(const Case& a_case, const Json& entry) {
  const std::string what = entry["what"].get<std::string>();
  if (what != "parameters" && what != "gradients" && what != "full_parameters") return false;
  if (!entry.contains("items") || !entry["items"].empty()) return false;
  auto model = a_case.models.find(entry.value("model", std::string("model")));
  if (model == a_case.models.end()) return false;
  const auto state = module_state(*model);
  return std::any_of(state.begin(), state.end(), [](const StateShape& each) { return !each.is_buffer; });
}

// What was to be seen and what was answered instead, for a list without items.
std::string about_empty_list(const Case& a_case, const std::string& what) {
  std::vector<std::string> names;
  for (const Json& model : a_case.models) {
    for (const StateShape& each : module_state(model)) {
      const bool known = std::find(names.begin(), names.end(), each.name) != names.end();
      if (!each.is_buffer && !known) names.push_back(each.name);
    }
  }
  const std::size_t shown = std::min<std::size_t>(names.size(), 4);
  return fmt::format(
      "answered '{}' with a list without items; {} parameters were to be in it, by the names of the case's "
      "model "
      "({}{})",
      what, names.size(), fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      names.size() > shown ? ", …" : "");
}

// What one rank answered, by step, and whether with anything in it. Entries that could not be used count:
// they were answered, however badly.
std::map<int, std::map<std::string, bool>> answers_of(const JudgeContext& context, int rank) {
  std::map<int, std::map<std::string, bool>> answers;
  for (const Observation& observation : context.run.observations) {
    if (observation.rank != rank) continue;
    auto& whats = answers[observation.step];
    if (!observation.entries.is_array()) continue;
    for (const Json& entry : observation.entries) {
      if (!entry.is_object() || !entry.contains("what") || !entry["what"].is_string()) continue;
      const std::string what = entry["what"].get<std::string>();
      whats[what] |= !is_empty_list(context.a_case, entry);
    }
  }
  return answers;
}

// What a step asks for.
std::vector<std::string> asked(const StepFacts& facts) {
  if (facts.verb == "observe") return facts.what;
  if (facts.verb == "attempt_end") return {"attempt"};
  return {};
}

}  // namespace

void all_ranks_answer(const JudgeContext& context, Outcome& outcome) {
  for (int rank = 0; rank < context.a_case.world; ++rank) {
    const auto answers = answers_of(context, rank);
    const auto excused = excused_steps(context, rank);
    for (int step = 0; step < context.program.size(); ++step) {
      const auto whats = asked(context.program.at(step));
      if (whats.empty() || excused.count(step) || !context.program.takes_part(step, rank)) continue;
      Place place;
      place.step = step;
      place.rank = rank;
      auto fail = [&](const char* code, const std::string& words) {
        outcome.findings.push_back(
            failure(context, place, {code, fmt::format("rank {} {} at step {}", rank, words, step)}));
      };
      auto answer = answers.find(step);
      if (answer == answers.end()) {
        fail("rank_missing",
             fmt::format("did not answer what it was to observe ({})", fmt::join(whats, ", ")));
        break;  // what follows on this rank is the same story
      }
      if (std::none_of(answer->second.begin(), answer->second.end(),
                       [](const auto& each) { return each.second; })) {
        fail("empty_answer",
             answer->second.empty()
                 ? fmt::format("answered nothing where {} was to be observed", fmt::join(whats, ", "))
                 : about_empty_list(context.a_case, answer->second.begin()->first));
        break;
      }
      for (const std::string& what : whats) {
        const auto found = answer->second.find(what);
        if (found != answer->second.end() && found->second) continue;
        place.what = what;
        fail("entry_missing", found == answer->second.end() ? fmt::format("left out '{}'", what)
                                                            : about_empty_list(context.a_case, what));
        return;
      }
    }
  }
}

}  // namespace fsdp_cts
