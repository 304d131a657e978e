#include "impl/testee/simulation.hpp"

namespace fsdp_cts::testee {

std::shared_ptr<Simulation> start_simulation(int) {
  return nullptr;
}

}  // namespace fsdp_cts::testee
