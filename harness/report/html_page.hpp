// The unchanging parts of the HTML report, and how text gets into it.
#pragma once

#include <string>
#include <string_view>

namespace fsdp_cts {

extern const std::string_view html_style;
extern const std::string_view html_script;
extern const std::string_view html_levels_of_honesty;

std::string escaped(const std::string& text);  // as text or as a value in quotes

}  // namespace fsdp_cts
