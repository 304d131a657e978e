// Programs that an implementation must refuse, with the error that a clause states. Each has models of its
// own, and stands at the end of a drawn scenario: whatever went before, the refusal is the same on every rank.
#pragma once

#include <string>
#include <vector>

#include "harness/generate/sketch.hpp"

namespace fsdp_cts::generate {

// As parts of a scenario file.
struct RefusalText {
  std::string models, plans;        // entries of maps
  std::string steps, expectations;  // entries of lists
  std::vector<std::string> clauses;
};

// Names of those for the sketch's API and world.
std::vector<std::string> refusals_for(const Sketch& sketch);
bool can_be_refused(const std::string& name, const Sketch& sketch);
bool pytorch_refuses(const std::string& name);
// `number` sets names apart where a scenario holds several. Inputs `narrow` [2, 4] must be there.
RefusalText refusal_text(const std::string& name, const Sketch& sketch, int number);

}  // namespace fsdp_cts::generate
