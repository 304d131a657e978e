// The observations of the fault testee: every model's initial parameters in dim-0 shards, or a lie about
// them.
#pragma once

#include <filesystem>
#include <string>

#include "harness/protocol/frame.hpp"

namespace fault_testee {

// The message for one `observe` step of a case on this rank; its tensor file is written below the case's
// scratch folder. `lie` is "" or one of the answers of main.cpp's table. Only `parameters` is answered; other
// things observed get no entry.
fsdp_cts::Json answer(const fsdp_cts::Json& the_case, int step, int rank, int world, const std::string& lie);

}  // namespace fault_testee
