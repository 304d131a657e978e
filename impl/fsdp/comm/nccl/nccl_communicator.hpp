#pragma once
// NCCL, for tensors on the current CUDA device. In a library of its own (fsdp_cuda), so that only programs
// that use a GPU load CUDA. Built without NCCL, the same functions say so.
#include <memory>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/comm/rendezvous.hpp"

namespace fsdp {

/// Whether the library was built with NCCL.
bool has_nccl();

/// Throws RuntimeError if built without NCCL, and what ProcessGroupNCCL throws where there is no GPU.
/// `device` is the index of this rank's GPU. Reductions add in NCCL's own order. `Work::wait` orders the
/// current stream, it does not block the host.
std::shared_ptr<Communicator> make_nccl_communicator(const Rendezvous& rendezvous, int64_t device);

}  // namespace fsdp
