#pragma once
// NCCL, for tensors on a CUDA device. In a library of its own (fsdp_cuda), so that only programs that use a
// GPU load CUDA; other programs may link the stub fsdp_no_nccl, whose answer says so.
#include <memory>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/comm/rendezvous.hpp"

namespace fsdp {

/// Whether this program has NCCL, or the stub.
bool has_nccl();

/// `device` is the index of this rank's GPU, which becomes the current device of the calling thread. Throws
/// RuntimeError without NCCL and for a device that is not there. Reductions add in NCCL's own order;
/// `Work::wait` orders the current stream, that of the thread that calls it, after the collective and does
/// not block the host.
std::shared_ptr<Communicator> make_nccl_communicator(const Rendezvous& rendezvous, int64_t device);

}  // namespace fsdp
