#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {
namespace {

// Steps a rank did not come to: from the failing step of an attempt to the attempt's end.
std::set<int> excused_steps(const Scene& scene, int rank) {
  std::set<int> excused;
  for (const auto& [place, fact] : scene.testee.facts) {
    if (place.what != "attempt" || place.rank != rank) continue;
    const Json& error = fact.value("error", Json());
    if (error.is_null()) continue;
    for (int step = error.value("step", place.step); step < place.step; ++step) excused.insert(step);
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

// What one rank answered, by step. Entries that could not be used count: they were answered, however badly.
std::map<int, std::set<std::string>> answers_of(const Scene& scene, int rank) {
  std::map<int, std::set<std::string>> answers;
  for (const Observation& observation : scene.run.observations) {
    if (observation.rank != rank) continue;
    auto& whats = answers[observation.step];
    if (!observation.entries.is_array()) continue;
    for (const Json& entry : observation.entries) {
      if (!entry.is_object() || !entry.contains("what") || !entry["what"].is_string()) continue;
      if (!is_empty_list(scene.a_case, entry)) whats.insert(entry["what"].get<std::string>());
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

void all_ranks_answer(const Scene& scene, Outcome& outcome) {
  for (int rank = 0; rank < scene.a_case.world; ++rank) {
    const auto answers = answers_of(scene, rank);
    const auto excused = excused_steps(scene, rank);
    for (int step = 0; step < scene.program.size(); ++step) {
      const auto whats = asked(scene.program.at(step));
      if (whats.empty() || excused.count(step) || !scene.program.takes_part(step, rank)) continue;
      Place place;
      place.step = step;
      place.rank = rank;
      auto fail = [&](const char* code, const std::string& words) {
        outcome.findings.push_back(
            failure(scene, place, {code, fmt::format("rank {} {} at step {}", rank, words, step)}));
      };
      auto answer = answers.find(step);
      if (answer == answers.end()) {
        fail("rank_missing",
             fmt::format("did not answer what it was to observe ({})", fmt::join(whats, ", ")));
        break;  // what follows on this rank is the same story
      }
      if (answer->second.empty()) {
        fail("empty_answer",
             fmt::format("answered nothing where {} was to be observed", fmt::join(whats, ", ")));
        break;
      }
      for (const std::string& what : whats) {
        if (answer->second.count(what)) continue;
        place.what = what;
        fail("entry_missing", fmt::format("left out '{}'", what));
        return;
      }
    }
  }
}

}  // namespace fsdp_cts
