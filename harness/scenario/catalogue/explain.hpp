// A case in plain words: why it exists, what is done step by step, what is expected, how to run it.
#pragma once

#include <string>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// Plain text, wrapped at 110 columns, ends with a newline. Repeated stretches of the program are described
// once.
std::string explain_case(const Case& a_case);

}  // namespace fsdp_cts
