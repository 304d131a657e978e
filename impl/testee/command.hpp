// The command line of a testee that is some build of the library.
#pragma once

#include <functional>
#include <string>

namespace fsdp_cts::testee {

// Serves until the runner lets go. `variant` is called once in each rank and says what the library is there, for
// `hello`; none for the library as it is shipped. `case_begins` is called with the id of each case before anything of it
// happens. Ends the process: with exit code 2 for arguments that cannot be.
[[noreturn]] void run(int argc, char** argv, const std::function<std::string()>& variant = {},
                      std::function<void(const std::string&)> case_begins = {});

}  // namespace fsdp_cts::testee
