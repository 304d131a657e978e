// What the program is doing now, in its own words, and what the host does to pinned memory: both are seen by
// callbacks that PyTorch offers to profilers.
#pragma once

#include <string_view>

namespace fsdp_cts::sim {

// The innermost record_function range of this thread, or "".
std::string_view scope();

// From the first call on, operators of the CPU are watched for what they do to pinned memory.
void watch_the_host();

}  // namespace fsdp_cts::sim
