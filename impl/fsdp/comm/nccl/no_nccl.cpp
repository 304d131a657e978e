// Stands in for nccl_communicator.cpp where the CUDA toolkit or NCCL is missing.
#include "fsdp/comm/nccl/nccl_communicator.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {

bool has_nccl() {
  return false;
}

std::shared_ptr<Communicator> make_nccl_communicator(const NcclOptions&) {
  throw RuntimeError(
      "This build of fsdp_cuda has no NCCL: configure with a CUDA toolkit and with NCCL's headers (the wheel "
      "nvidia-nccl) "
      "present.");
}

}  // namespace fsdp
