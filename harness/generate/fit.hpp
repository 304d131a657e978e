// Sketches with data in which nothing rounds, as cases.
#pragma once

#include "harness/generate/write.hpp"
#include "harness/runner/session.hpp"

namespace fsdp_cts::generate {

struct Drawn {
  Origin origin;
  Sketch sketch;
  std::vector<Case> cases;  // one, or two of which the second loads what the first saves
  std::string text;         // of the scenario

  const Case& whole() const { return cases.back(); }
};

// The cases of the scenario. Throws std::logic_error when the sketch gives no valid one: a fault of the
// generator, whatever was drawn.
Drawn written(const Origin& origin, Sketch sketch, const std::string& why);

// Asks the reference, natively and in float64, whether the data prove something (judge/fitness.hpp); where
// they do not, up to `draws` seeds are tried. Returns for each an empty text, or why none was fit.
std::vector<std::string> fit_data(std::vector<Drawn>& drawn, int draws, const Testee& oracle,
                                  Session& session);

}  // namespace fsdp_cts::generate
