#pragma once
// Gloo, as bundled in LibTorch. Host tensors of any c10d dtype.
#include <memory>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/comm/rendezvous.hpp"

namespace fsdp {

/// Blocks until all ranks have come. The reduce-scatter exchanges pieces all-to-all and adds them locally in
/// rank order, each addition rounded in the tensor's dtype: half the bytes of Gloo's own (an all-reduce and a
/// slice), and an order that depends on nothing but the rank. An all-reduce adds in rank order too. Each rank
/// sends 2 (n - 1) / n times the tensor, in two exchanges; up to 4 KiB the whole to every rank, in one. The
/// second exchange of a larger one among more than two ranks starts in a thread of the group's own.
///
/// A collective that fails throws RuntimeError from `wait`: at once when a rank has ended, after the
/// rendezvous' timeout when one does not come. Ranks that issued different collectives time out too, and the
/// error then says which rank issued what, where the store still can be asked.
std::shared_ptr<Communicator> make_gloo_communicator(const Rendezvous& rendezvous);

}  // namespace fsdp
