#pragma once
// NCCL, for tensors on the current CUDA device. In a library of its own (fsdp_cuda), so that only programs
// that use a GPU load CUDA. Built without NCCL, the same functions say so.
#include <chrono>
#include <memory>
#include <string>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

struct NcclOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t device = 0;  ///< index of this rank's CUDA device
  /// As in GlooOptions.
  std::string file_store;
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// Whether the library was built with NCCL.
bool has_nccl();

/// Throws RuntimeError if built without NCCL, and what ProcessGroupNCCL throws where there is no GPU.
/// Reductions add in NCCL's own order. `Work::wait` orders the current stream, it does not block the host.
std::shared_ptr<Communicator> make_nccl_communicator(const NcclOptions& options);

}  // namespace fsdp
