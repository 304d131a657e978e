// What stands behind --testee.
#pragma once

#include <string>

#include "harness/cli/suite.hpp"
#include "harness/runner/testee.hpp"

namespace fsdp_cts::cli {

struct TesteeChoice {
  std::string spec = "cpp";  // cpp | pytorch | mutant:ID | a command line
  std::string backend;       // passed on as --backend and --device where given
  std::string device;
};

// cpp: <bin>/fsdp_testee, on another device than the CPU <bin>/fsdp_testee_cuda; mutant:ID: the same with
// --mutant ID; pytorch: golden/pytorch_testee with FSDP_CTS_PYTHON, else the interpreter ci/setup makes, else
// python3; anything else is a command line, run by the shell if it has more than one word. Throws UsageError
// when the program is not there, saying how to get it.
Testee testee_from(const TesteeChoice& choice, const Suite& suite);

// The oracle: <bin>/fsdp_reference. Throws UsageError when it was not built.
Testee oracle_of(const Suite& suite);

// As it stands on a command line, for `repeat` commands: "--testee pytorch --device cuda", "" for the
// default.
std::string testee_arguments(const TesteeChoice& choice);

// One shell word, quoted where needed.
std::string quoted(const std::string& word);

}  // namespace fsdp_cts::cli
