#pragma once
// Gloo, as bundled in LibTorch. Host tensors of any c10d dtype.
#include <memory>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/comm/rendezvous.hpp"

namespace fsdp {

/// Blocks until all ranks have come. The reduce-scatter exchanges pieces all-to-all and adds them locally in
/// rank order, each addition rounded in the tensor's dtype: half the bytes of Gloo's own (an all-reduce and a
/// slice), and an order that depends on nothing but the rank.
std::shared_ptr<Communicator> make_gloo_communicator(const Rendezvous& rendezvous);

}  // namespace fsdp
