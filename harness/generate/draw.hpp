// Random scenarios that must work: what a right implementation of the API has to act out.
#pragma once

#include "harness/generate/sketch.hpp"

namespace fsdp_cts::generate {

// The same for the same three numbers, on every machine. `attempt` counts what was drawn before for this
// index and was thrown away, since its values round. The result is legal (sketch.hpp); its data are not
// proved exact.
Sketch draw_sketch(std::int64_t seed, int index, int attempt);

}  // namespace fsdp_cts::generate
