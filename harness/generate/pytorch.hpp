// What is drawn for PyTorch: less than for others, since what it is known to do otherwise proves nothing more.
#pragma once

#include "harness/generate/sketch.hpp"

namespace fsdp_cts::generate {

// What PyTorch 2.11 on a CPU is known to do otherwise than clauses say, or its testee cannot do; nothing if all
// that the sketch asks for must agree.
std::optional<std::string> why_not_for_pytorch(const Sketch& sketch);

}  // namespace fsdp_cts::generate
