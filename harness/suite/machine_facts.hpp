// What machine a report is from.
#pragma once

#include "harness/scenario/catalogue/machine.hpp"

namespace fsdp_cts {

// {system, cpu, cores, memory_gib, gpus, cuda, simulated, nccl, compiler}
Json machine_facts(const Machine& machine);

}  // namespace fsdp_cts
