// What programs without fsdp_cuda link in its place.
#include "fsdp/comm/nccl.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {

bool has_nccl() {
  return false;
}

std::shared_ptr<Communicator> make_nccl_communicator(const Rendezvous&, int64_t) {
  throw RuntimeError(
      "NCCL was asked for, but this program has none: link fsdp_cuda, configured with a CUDA toolkit and "
      "NCCL's headers (the wheel nvidia-nccl-cu13) present.");
}

}  // namespace fsdp
