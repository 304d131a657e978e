#pragma once
// For those who have met already: a group over shared memory through a store that is open.
#include <memory>

#include "comm/store_group.hpp"

namespace fsdp {

/// As make_shm_communicator, for the given members of a store.
std::shared_ptr<Communicator> make_shm_group(GroupMembers members);

}  // namespace fsdp
