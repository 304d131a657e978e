#include "harness/runner/environment.hpp"

#include <unistd.h>

#include <cstdlib>

namespace fsdp_cts {

std::vector<std::string> environment_with(const Variables& changes) {
  std::vector<std::string> result;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string entry = *each;
    const std::string name = entry.substr(0, entry.find('='));
    const bool of_an_outer_run =
        name == "FSDP_CTS_ROLE" || name == "FSDP_CTS_FORK_SERVER" || name == "FSDP_CTS_SOCKET";
    if (!changes.contains(name) && !of_an_outer_run) result.push_back(entry);
  }
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  return result;
}

Variables testee_variables(const Testee& testee) {
  Variables variables = testee.environment;
  // As torchrun does: W ranks with a thread per core each would stand in each other's way.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) variables.try_emplace("OMP_NUM_THREADS", "1");
  if (testee.oracle) variables["FSDP_CTS_ROLE"] = "oracle";
  return variables;
}

}  // namespace fsdp_cts
