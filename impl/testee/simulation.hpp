// The simulated accelerator (harness/sim) under the library. Only fsdp_testee_sim and the mutants' twin of it link the
// device; every other program has no_simulation.cpp in place of simulation.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/comm/communicator.hpp"
#include "harness/protocol/frame.hpp"

namespace fsdp_cts::testee {

// A stretch of the program in virtual time, as sim::StepNumbers has it; memory is that of this rank's device.
struct Stretch {
  std::chrono::nanoseconds duration{}, compute{}, communication{}, exposed_communication{};
  std::size_t peak_bytes = 0;
};

class Simulation {
 public:
  virtual ~Simulation() = default;

  virtual c10::Device device() const = 0;  // this rank's
  // The group's collectives as operators of the device: put on the current stream, their elements carried by
  // `transport`, a group of the CPU.
  virtual std::shared_ptr<fsdp::Communicator> over(std::shared_ptr<fsdp::Communicator> transport) const = 0;

  // Nothing of an earlier case is unfinished, found or counted.
  virtual void begin_case(const std::string& id) = 0;
  virtual void end_case() = 0;
  virtual std::shared_ptr<void> unobserved() const = 0;  // while the result lives
  virtual std::vector<Json> findings() = 0;              // since the last call, as PROTOCOL.md has them
  virtual Json use() = 0;                                // since the last call, as PROTOCOL.md has it
  virtual std::uint64_t launches() const = 0;            // since the case began
  virtual std::int64_t kept_bytes() const = 0;           // more on the device than when the case began
  virtual void name_buffer(const at::Tensor& tensor, const std::string& name) const = 0;
  virtual void delay(std::chrono::nanoseconds duration) const = 0;  // in virtual time, the current stream
  virtual void begin_stretch() const = 0;                           // nothing where no machine is chosen
  virtual std::optional<Stretch> end_stretch() const = 0;           // since begin_stretch
};

// Registers the device and makes that of the rank current. Null: this program is built without it.
std::shared_ptr<Simulation> start_simulation(int local_rank);

}  // namespace fsdp_cts::testee
