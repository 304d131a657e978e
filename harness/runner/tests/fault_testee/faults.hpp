// What the fault testee does wrong as a process and as a speaker of the protocol.
#pragma once

#include <cstddef>
#include <string>

#include "harness/protocol/channel.hpp"

namespace fault_testee {

// A collective whose other ranks never come. The name is what a stack shows of a rank in Gloo.
[[noreturn]] void waitRecv();

// Ends, stops or harms this process the way `fault` says; returns for faults that let it go on.
void harm_process(const std::string& fault, std::size_t megabytes);

// Says something it must not say within a case; returns for faults that are not about speech.
void speak_out_of_order(const std::string& fault, fsdp_cts::Channel& channel, const fsdp_cts::Json& the_case,
                        int step, int rank);

}  // namespace fault_testee
