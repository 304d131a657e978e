// The command line of a testee that is some build of the library.
#pragma once

#include <string>

namespace fsdp_cts::testee {

// Serves until the runner lets go. `variant`: what this build is, for `hello`; empty for the library as it is
// shipped. Ends the process: with exit code 2 for arguments that cannot be.
[[noreturn]] void run(int argc, char** argv, const std::string& variant = {});

}  // namespace fsdp_cts::testee
