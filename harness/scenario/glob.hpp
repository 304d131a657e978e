// Names chosen by a pattern, in filters, data sections and lists of cases.
#pragma once

#include <string_view>

namespace fsdp_cts {

// The whole text matches: `*` any run of characters, `?` any one.
bool matches_glob(std::string_view text, std::string_view pattern);

}  // namespace fsdp_cts
