// What stands in for shared memory where there is no Linux.
#include "fsdp/comm/shm.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {

std::shared_ptr<Communicator> make_shm_communicator(const Rendezvous&) {
  throw RuntimeError("The shared-memory backend needs Linux (futexes and memory files). Use Gloo.");
}

}  // namespace fsdp
