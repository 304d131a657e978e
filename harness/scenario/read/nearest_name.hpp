// "Did you mean …?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fsdp_cts {

// The candidate most like `found`, or "" when none is near.
std::string nearest_name(std::string_view found, const std::vector<std::string>& candidates);

}  // namespace fsdp_cts
