#pragma once
#include <string>
#include <vector>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// What every rank of the group has to say, by rank. Any bytes. Collective: two all-gathers.
std::vector<std::string> all_gather_text(Communicator& group, const std::string& own, const CallSite& site);

}  // namespace fsdp
