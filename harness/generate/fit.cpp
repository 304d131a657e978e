#include "harness/generate/fit.hpp"

#include <stdexcept>

#include "harness/scenario/catalogue/load.hpp"
#include "harness/scenario/read/mistakes.hpp"
#include "harness/suite/oracle_fitness.hpp"

namespace fsdp_cts::generate {
namespace {

constexpr const char* why_drawn =
    "Drawn at random from what must work, to find what nobody thought of. Nothing in it rounds, so every bit "
    "counts.";

}  // namespace

Drawn written(const Origin& origin, Sketch sketch, const std::string& why) {
  Drawn drawn{origin, std::move(sketch), {}, {}};
  drawn.text = scenario_text(drawn.sketch, origin, why.empty() ? why_drawn : why);
  Mistakes mistakes;
  drawn.cases = load_scenario(drawn.text, scenario_id(origin), {}, mistakes);
  try {
    mistakes.throw_if_any();
  } catch (const ScenarioError& error) {
    throw std::logic_error(std::string("a drawn scenario has mistakes:\n") + error.what() + "\n" +
                           drawn.text);
  }
  if (drawn.cases.empty()) throw std::logic_error("a drawn scenario has no cases:\n" + drawn.text);
  return drawn;
}

std::vector<std::string> fit_data(std::vector<Drawn>& drawn, int draws, const Testee& oracle,
                                  Session& session) {
  std::vector<std::string> unfit(drawn.size(), "not asked");
  for (int draw = 0; draw < draws; ++draw) {
    std::vector<const Case*> asked;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      if (unfit[i].empty()) continue;
      if (draw > 0) {
        ++drawn[i].sketch.data_seed;
        drawn[i] = written(drawn[i].origin, drawn[i].sketch, "");
      }
      asked.push_back(&drawn[i].whole());
      places.push_back(i);
    }
    if (asked.empty()) break;
    const std::vector<Unfit> answers = why_unfit_each(asked, oracle, session);
    for (std::size_t k = 0; k < answers.size(); ++k) unfit[places[k]] = answers[k].why;
  }
  return unfit;
}

}  // namespace fsdp_cts::generate
