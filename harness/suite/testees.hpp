// What stands behind --testee.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/runner/testee.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts {

struct TesteeChoice {
  std::string spec = "cpp";  // cpp | pytorch | mutant:ID | a command line
  std::string python;        // the interpreter whose torch is meant by `pytorch`
  std::string backend;       // passed on as --backend and --device where given
  std::string device;
  std::vector<std::string> environment;  // NAME=VALUE, for its ranks
  bool fork_server = false;              // a command line that can be one
  std::string sim_machine;               // of --device sim: whose virtual time it keeps,
  std::string sim_trace;                 // the folder for what ran when,
  std::string sim_memory;                // and the limit of each device, such as 64MB
};

// Before anything is run. Chooses an interpreter for `pytorch` where none is named: FSDP_CTS_PYTHON, else the one
// ci/setup makes, else python3. Throws UsageError where one is named for another testee, where one of our testees has
// no such device, and where an option of the simulated accelerator is given without it or is not understood.
void settle(TesteeChoice& choice);

// "512KB", "64 MB", "2GiB" or a number of bytes; nothing where it is none of that, is 0, or does not fit.
std::optional<std::uint64_t> bytes_in(const std::string& text);

// The backend that was asked for, else the one that our testees take by themselves; empty for a foreign one.
std::string backend_of(const TesteeChoice& choice);

// The version of its torch by the package's metadata, such as "2.11.0+cu130"; importing torch would take
// seconds. Throws UsageError, saying how to get one, where there is none.
std::string torch_version(const std::string& python);

// cpp: <bin>/fsdp_testee, on another device than the CPU <bin>/fsdp_testee_cuda or fsdp_testee_sim; mutant:ID:
// <bin>/fsdp_testee_mutants with FSDP_CTS_MUTANT=ID, on the simulated accelerator fsdp_testee_mutants_sim; pytorch: golden/pytorch_testee with the chosen interpreter, over shm
// with the module that was built for it; anything else is a command line, run by the shell if it has more
// than one word. Throws UsageError when the program or the module is not there, saying how to get it.
Testee testee_from(const TesteeChoice& choice, const Suite& suite);

// The oracle: <bin>/fsdp_reference. Throws UsageError when it was not built. Where the testee's device counts its memory the
// oracle counts its own, too; it costs each of its tensors an entry in a table.
Testee oracle_of(const Suite& suite, const std::string& device = "");

// One shell word, quoted where needed.
std::string quoted(const std::string& word);

}  // namespace fsdp_cts
