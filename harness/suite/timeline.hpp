// What a failing case did when, from the traces that the simulated accelerator leaves (harness/sim/sim.hpp), short
// enough for a report.
#pragma once

#include <filesystem>

#include "harness/protocol/frame.hpp"

namespace fsdp_cts {

// {machine, ranks: [{rank, lanes: [{name, spans: [[begin, duration, kind, operation], …]}, …],
// marks: [[lane, at, code, text], …], not_shown}, …]}, times in microseconds, from <folder>/rank<N>.json. Of a rank's
// spans about a hundred around its first finding, else the last ones. Ranks whose file is not there or is no trace are
// left out; null where all are.
Json read_timeline(const std::filesystem::path& folder, int world);

}  // namespace fsdp_cts
