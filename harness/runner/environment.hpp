// The variables of the processes that the runner starts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/runner/testee.hpp"

namespace fsdp_cts {

using Variables = std::map<std::string, std::string>;

// The runner's own environment with `changes` on top, as "NAME=value". What an outer run of the suite has set
// for its ranks is not handed on.
std::vector<std::string> environment_with(const Variables& changes);

// What every process of a testee gets, whichever rank it is.
Variables testee_variables(const Testee& testee);

}  // namespace fsdp_cts
