// JUnit XML for CI servers: a suite per seed and world, a test case per case.
#pragma once

#include "harness/report/report.hpp"

namespace fsdp_cts {

// fail and unexpected passes are failures, crash, hang, setup_error and unresolved are errors, skipped and
// unsupported are skipped, xfail is passed with its note in system-out. Throws std::runtime_error when the
// file cannot be written.
void write_junit(const Report& report, const std::filesystem::path& file);

}  // namespace fsdp_cts
