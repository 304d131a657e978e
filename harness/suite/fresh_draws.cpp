#include "harness/suite/fresh_draws.hpp"

#include <fmt/format.h>

#include "harness/judge/reference_key.hpp"
#include "harness/scenario/data/fresh_data.hpp"
#include "harness/suite/oracle_fitness.hpp"

namespace fsdp_cts {
namespace {

// Cases that differ in nothing the reference computes with or is asked about: they get the same draw.
struct Question {
  std::vector<Case*> askers;
  Case drawn;
};

std::string key_of(const Case& a_case, std::int64_t seed) {
  const Case first = with_fresh_data(a_case, seed, 1);
  Json differs = Json::array();
  for (const Json& expectation : first.expect) {
    if (expectation.contains("equal")) differs.push_back(expectation["equal"].at("what"));
    if (expectation.contains("differ")) differs.push_back(expectation["differ"]);
  }
  return reference_key(first, exact_order, "native") + differs.dump();
}

}  // namespace

FreshDraws draw_fresh_data(const std::vector<Case*>& cases, std::int64_t seed, const Testee& oracle,
                           const SessionOptions& options) {
  FreshDraws result;
  std::map<std::string, Question> open;
  for (Case* each : cases) open[key_of(*each, seed)].askers.push_back(each);
  Session session(options);
  for (int draw = 1; draw <= max_draws && !open.empty(); ++draw) {
    std::vector<const Case*> asked;
    for (auto& [key, question] : open) {
      question.drawn = with_fresh_data(*question.askers.front(), seed, draw);
      asked.push_back(&question.drawn);
    }
    const std::vector<Unfit> answers = why_unfit_each(asked, oracle, session);
    auto answer = answers.begin();
    for (auto each = open.begin(); each != open.end(); ++answer) {
      Question& question = each->second;
      if (!answer->why.empty()) {
        for (const Case* asker : question.askers) result.unfit[asker->id] = answer->why;
        each = answer->for_any_draw ? open.erase(each) : std::next(each);
        continue;
      }
      for (Case* asker : question.askers) {
        result.unfit.erase(asker->id);
        result.draws[asker->id] = draw;
        *asker = with_fresh_data(*asker, seed, draw);
      }
      each = open.erase(each);
    }
  }
  session.close();
  leave_out_other_data(cases, result);
  return result;
}

void leave_out_other_data(const std::vector<Case*>& cases, FreshDraws& draws) {
  std::map<std::string, std::string> continued;
  for (const Case* each : cases) continued[each->id] = each->continues;
  const auto draw_of = [&](const std::string& id) {
    const auto drawn = draws.draws.find(id);
    return drawn == draws.draws.end() ? 0 : drawn->second;
  };
  std::vector<std::string> left_out;
  for (const auto& [id, first] : continued) {
    const int draw = draw_of(id);
    if (draw == 0) continue;
    std::string before = first;
    while (draw_of(before) == draw) before = continued.at(before);
    if (before.empty()) continue;
    draws.unfit[id] = "it loads a checkpoint of other data";
    left_out.push_back(id);
  }
  for (const std::string& id : left_out) draws.draws.erase(id);
}

}  // namespace fsdp_cts
