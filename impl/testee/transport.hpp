// Where this rank computes and what it talks through, decided once by --device.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "fsdp/comm/communicator.hpp"
#include "impl/testee/simulation.hpp"

namespace fsdp_cts::testee {

struct Transport {
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  std::string backend = "gloo";
  std::string reduction_order = "rank";              // as `hello` says it
  std::shared_ptr<Simulation> simulation = nullptr;  // of device "sim"
};

// "cpu" with Gloo or shm (shared memory); "sim", the simulated accelerator, over either; or "cuda": the GPU of
// LOCAL_RANK with NCCL, or with either of the CPU's through pinned memory, and then ranks may outnumber GPUs. Throws
// std::runtime_error, saying what is missing, when this program has no NCCL or no simulation or the machine no GPU, and
// when `backend` is none of the device's.
Transport transport_for(const std::string& device, const std::string& backend);

// The group of all ranks, found through FSDP_CTS_RENDEZVOUS or torchrun's variables.
std::shared_ptr<fsdp::Communicator> make_world(const Transport& transport);

}  // namespace fsdp_cts::testee
