// What this machine offers to cases that ask for more than a CPU.
#pragma once

#include <optional>
#include <string>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

struct Machine {
  int gpus = 0;            // accelerators of any kind
  bool cuda = false;       // they are CUDA's: with its kernels and its messages
  bool simulated = false;  // they are the simulated accelerator: with virtual time
  bool nccl = false;
  bool compiler = false;  // a C++ compiler, which graph compilation needs
};

// Looks at device files and PATH only; starts no process and links no driver.
Machine this_machine();

// Why the case cannot run on `machine`, or nothing. A case that upstream returns early from cannot run
// anywhere.
std::optional<std::string> why_not_runnable(const Case& a_case, const Machine& machine);

// Why a case whose ranks want a GPU each has too few of them.
std::string too_few_gpus(const Case& a_case, const Machine& machine);

}  // namespace fsdp_cts
