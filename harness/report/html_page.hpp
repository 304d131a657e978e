// The unchanging parts of the HTML report.
#pragma once

#include <string_view>

namespace fsdp_cts {

extern const std::string_view html_style;
extern const std::string_view html_script;
extern const std::string_view html_levels_of_honesty;

}  // namespace fsdp_cts
