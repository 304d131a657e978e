#include "impl/testee/transport.hpp"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <stdexcept>

#include "fsdp/comm/gloo.hpp"
#include "fsdp/comm/nccl.hpp"
#include "fsdp/comm/shm.hpp"
#include "fsdp/comm/staged.hpp"

namespace fsdp_cts::testee {
namespace {

int local_rank() {
  const char* rank = std::getenv("LOCAL_RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

// NCCL wants a GPU for each rank; what is carried by the CPU lets ranks share one.
Transport cuda(const std::string& backend) {
  Transport transport;
  int index = local_rank();
  if (backend == "shm" || backend == "gloo") {
    transport.backend = backend;
    index %= static_cast<int>(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount());
  } else {
    transport.backend = "nccl";
    transport.reduction_order = "unspecified";
  }
  transport.device = c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
  return transport;
}

std::shared_ptr<fsdp::Communicator> on_device(std::shared_ptr<fsdp::Communicator> group, c10::Device device) {
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return fsdp::make_staged_communicator(std::move(group), device);
}

}  // namespace

Transport transport_for(const std::string& device, const std::string& backend) {
  Transport transport;
  if (device == "cuda") {
    if (!fsdp::has_nccl()) {
      throw std::runtime_error(
          "this program has no NCCL; --device cuda is for fsdp_testee_cuda, built with a CUDA toolkit and "
          "NCCL's headers present");
    }
    if (!at::hasCUDA())
      throw std::runtime_error(
          "--device cuda was asked for and this machine shows no CUDA device; see nvidia-smi");
    transport = cuda(backend);
  } else if (backend == "shm") {
    transport.backend = backend;
  }
  if (device == "sim") {
    transport.simulation = start_simulation(local_rank());
    if (!transport.simulation)
      throw std::runtime_error(
          "this program has no simulated accelerator; --device sim is for fsdp_testee_sim");
    transport.device = transport.simulation->device();
  }
  if (!backend.empty() && backend != transport.backend) {
    throw std::runtime_error("found --backend " + backend + " with --device " + device +
                             ", which goes with " + transport.backend);
  }
  return transport;
}

std::shared_ptr<fsdp::Communicator> make_world(const Transport& transport) {
  const char* store = std::getenv("FSDP_CTS_RENDEZVOUS");
  const fsdp::Rendezvous rendezvous = fsdp::rendezvous_from_environment(store == nullptr ? "" : store);
  if (transport.backend == "nccl") return fsdp::make_nccl_communicator(rendezvous, transport.device.index());
  auto group = transport.backend == "shm" ? fsdp::make_shm_communicator(rendezvous)
                                          : fsdp::make_gloo_communicator(rendezvous);
  if (transport.simulation) return transport.simulation->over(std::move(group));
  return transport.device.is_cpu() ? group : on_device(std::move(group), transport.device);
}

}  // namespace fsdp_cts::testee
