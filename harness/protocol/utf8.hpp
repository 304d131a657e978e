// Text as UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace fsdp_cts {

// Without overlong forms and surrogates, as JSON asks for it.
bool is_utf8(std::string_view text);

// At most `limit` bytes of a text that goes into a sentence for a person, cut between two characters of UTF-8
// and then with "…" behind. Bytes that are no UTF-8, which such a text may quote from a damaged file, become U+FFFD.
std::string shortened(std::string_view text, std::size_t limit);

}  // namespace fsdp_cts
