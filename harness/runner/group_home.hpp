// What belongs to the processes of one group alone.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp_cts {

// The token begins with the mark's value, by which stray processes are found.
struct GroupHome {
  std::filesystem::path folder;  // exists
  std::string token;
  std::string mark;  // "FSDP_CTS_TOKEN=<session>-<group>-"
};

}  // namespace fsdp_cts
