// The machines whose virtual time the simulated accelerator can keep: how long what takes. Figures of hardware are
// peaks, so a step of virtual time is a lower bound for hardware and no forecast; what counts is that two
// programs are held against the same clock.
//
// Needs nothing of PyTorch: the command line knows the names from here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp_cts::sim {

using Nanoseconds = std::int64_t;

// Bandwidths in bytes per nanosecond (GB/s), rates in floating-point operations per nanosecond (GFLOP/s).
struct Machine {
  std::string_view name;
  std::string_view about;

  Nanoseconds host_launch;    // that the host spends on every operator
  Nanoseconds kernel_launch;  // that a stream spends on every operator beside its work
  double memory_bandwidth;
  double rate_64, rate_32, rate_16;  // of matrix products, by the bits of an element

  double link_bandwidth;  // between host and device

  // Of a ring: bytes that a rank sends to the next, once per collective, and once per step around the ring.
  double ring_bandwidth;
  Nanoseconds ring_base;
  Nanoseconds ring_step;
};

// Sources:
// - Rates, memory, NVLink, PCIe: NVIDIA, "H100 Tensor Core GPU" data sheet, SXM, without sparsity: 3.35 TB/s;
//   FP64 tensor 67, FP32 67, BF16 and FP16 989 TFLOP/s (TF32 is off in PyTorch unless asked for); NVLink 900 GB/s
//   and PCIe gen 5 128 GB/s, each both ways together, so half in one direction.
// - InfiniBand: NVIDIA, "DGX H100/H200 User Guide": one ConnectX-7 of 400 Gb/s per GPU.
// - Rings: NCCL's own table for its choice of algorithms (src/graph/tuning.cc: baseLat and hwLat, ring, protocol
//   Simple): 8.4 us, and per step 3.4 us over NVLink, 14 us over a network.
// - What an operator costs the host and a stream beside its work is not published: 5 us and 2 us, the order of
//   magnitude of PyTorch without graphs.
// - `slow` is no machine: one on which the small models of tests wait for communication.
constexpr Machine h100_over(std::string_view name, std::string_view about, double ring_bandwidth,
                            Nanoseconds ring_step) {
  return {.name = name,
          .about = about,
          .host_launch = 5000,
          .kernel_launch = 2000,
          .memory_bandwidth = 3350,
          .rate_64 = 67e3,
          .rate_32 = 67e3,
          .rate_16 = 989e3,
          .link_bandwidth = 64,
          .ring_bandwidth = ring_bandwidth,
          .ring_base = 8400,
          .ring_step = ring_step};
}

inline constexpr std::array<Machine, 3> machines{{
    h100_over("h100-nvlink", "H100 SXM, ranks over NVLink", 450, 3400),
    h100_over("h100-infiniband", "H100 SXM, one rank per node over InfiniBand NDR", 50, 14000),
    {.name = "slow",
     .about = "made up: 1 TFLOP/s, 100 GB/s of memory, 1 GB/s between ranks",
     .host_launch = 5000,
     .kernel_launch = 2000,
     .memory_bandwidth = 100,
     .rate_64 = 1e3,
     .rate_32 = 1e3,
     .rate_16 = 1e3,
     .link_bandwidth = 5,
     .ring_bandwidth = 1,
     .ring_base = 10000,
     .ring_step = 20000},
}};

// Null where there is none of this name.
inline const Machine* find_machine(std::string_view name) {
  for (const Machine& machine : machines) {
    if (machine.name == name) return &machine;
  }
  return nullptr;
}

// "h100-nvlink (H100 SXM, ranks over NVLink), …"
inline std::string table_of_machines() {
  std::string text;
  for (const Machine& machine : machines) {
    if (!text.empty()) text += ", ";
    text.append(machine.name).append(" (").append(machine.about).append(")");
  }
  return text;
}

}  // namespace fsdp_cts::sim
