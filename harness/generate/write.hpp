// A sketch as a scenario file, which `run --scenarios` takes like any other.
#pragma once

#include "harness/generate/sketch.hpp"

namespace fsdp_cts::generate {

// {seed, index}: the name a drawn scenario has, for good.
struct Origin {
  std::int64_t seed = 0;
  int index = 0;
};
std::string scenario_id(const Origin& origin);
// The text of the file. `why` is one sentence about what it was drawn or kept for.
std::string scenario_text(const Sketch& sketch, const Origin& origin, const std::string& why);

}  // namespace fsdp_cts::generate
