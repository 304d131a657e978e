#pragma once
// Memory that all ranks of one host share. Host tensors of any dtype. Linux only.
#include <memory>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/comm/rendezvous.hpp"

namespace fsdp {

/// Blocks until all ranks have come; the store is used for that alone. A collective copies this rank's part
/// into its own shared memory when it is issued, and reads the others' when it is waited for. So no rank ever
/// waits for room, up to 4096 collectives of a group in flight, and works may be waited for in any order, of
/// any number of groups. Reductions add in rank order, each addition rounded in the tensor's dtype: the same
/// bits as over Gloo.
///
/// Throws RuntimeError, naming the rank and the collective, when a rank has ended (noticed within a fraction
/// of a second), is on another host, or does not come within the rendezvous' timeout; and when ranks have
/// issued different collectives, saying which rank issued what. (The root of a broadcast waits for nobody, so
/// it learns of that only later.)
///
/// A group of n ranks takes n x 64 GiB of each rank's address space, but memory only for what is in flight.
/// Where that much may not be mapped (RLIMIT_AS, ulimit -v) all ranks halve it until every one of them can
/// map it and have as much left for all else; below 256 MiB the making of the group throws RuntimeError. What
/// is in flight at one time must fit: a collective that does not throws RuntimeError when it is issued.
///
/// The shared memory has no name in any file system: it is gone with the last process that maps it, however
/// that ends.
std::shared_ptr<Communicator> make_shm_communicator(const Rendezvous& rendezvous);

}  // namespace fsdp
