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
  // The C library of GNU fills what it hands out with the complement of this byte and what it takes back with the
  // byte itself: 3.0039 and -1.4961 in float32, finite in every other type. Memory of the system is zero, so who
  // reads what nobody wrote could be right by luck.
  if (std::getenv("MALLOC_PERTURB_") == nullptr) variables.try_emplace("MALLOC_PERTURB_", "191");
  if (testee.oracle) variables["FSDP_CTS_ROLE"] = "oracle";
  return variables;
}

}  // namespace fsdp_cts
