// What machine a report is from.
#pragma once

#include "harness/case/machine.hpp"

namespace fsdp_cts::cli {

// {system, cpu, cores, memory_gib, gpus, nccl, compiler}
Json machine_facts(const Machine& machine);

}  // namespace fsdp_cts::cli
