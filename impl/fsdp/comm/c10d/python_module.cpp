// The Python module through which PyTorch gets our shared memory:
//
//   torch.distributed.Backend.register_backend("shm", module.make_shm_backend, extended_api=True,
//   devices=["cpu"])
//
// and for the tensors of a GPU, which several ranks may share:
//
//   make = functools.partial(module.make_shm_backend, device="cuda:0")
//   torch.distributed.Backend.register_backend("shm", make, extended_api=True, devices=["cuda"])
#include <torch/csrc/utils/pybind.h>

#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/c10d/communicator_backend.hpp"
#include "comm/shm/shm_group.hpp"
#include "fsdp/comm/staged.hpp"

namespace {

/// Blocks until all ranks of the group have come.
c10::intrusive_ptr<c10d::Backend> make_shm_backend(const c10d::DistributedBackendOptions& options,
                                                   const pybind11::object&, const std::string& device) {
  auto ranks = options.global_ranks_in_group;
  if (ranks.empty()) {  // c10d's way of saying all
    ranks.resize(static_cast<size_t>(options.group_size));
    std::iota(ranks.begin(), ranks.end(), int64_t{0});
  }
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  const pybind11::gil_scoped_release release;
  auto group = fsdp::make_shm_group(
      {options.store, ranks.at(static_cast<size_t>(options.group_rank)), ranks, timeout});
  if (const at::Device wanted(device); !wanted.is_cpu())
    group = fsdp::make_staged_communicator(std::move(group), wanted);
  return c10::make_intrusive<fsdp::CommunicatorBackend>(std::move(group), "shm");
}

}  // namespace

PYBIND11_MODULE(fsdp_c10d, module) {
  pybind11::module_::import("torch.distributed");  // has the classes that come and go here
  module.def("make_shm_backend", &make_shm_backend, pybind11::arg("options"),
             pybind11::arg("backend_options") = pybind11::none(), pybind11::arg("device") = "cpu");
}
