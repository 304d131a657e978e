// One HTML file without external parts: what was run and what came of it on the first screen, every case
// below.
#pragma once

#include "harness/report/report.hpp"

namespace fsdp_cts {

// `explanations`: case id → plain text, shown with the case where there is one. Throws std::runtime_error
// when the file cannot be written.
void write_html(const Report& report, const std::map<std::string, std::string>& explanations,
                const std::filesystem::path& file);

}  // namespace fsdp_cts
