// Pieces of plain words that explain_case puts together.
#pragma once

#include "harness/scenario/case.hpp"
#include "harness/scenario/read/grammar.hpp"

namespace fsdp_cts {

// Lines of at most 110 columns; all but the first are indented by `hanging`. Ends with a newline.
std::string wrapped(const std::string& text, std::size_t hanging);

std::string shown(const Json& value);  // lists as "a, b", maps as "key value, key value"
// "key value" of every argument that `mentioned` does not name and that differs from its default in `fields`.
std::string shown_arguments(const Json& arguments, const std::vector<std::string>& mentioned,
                            const Fields* fields = nullptr);
// `sentence` with every {argument} filled in, and what it does not mention behind it.
std::string filled_in(const std::string& sentence, const Json& arguments, const Fields& fields);

// A line per step; iterations that do the same are described once, arguments that change with their first
// values.
std::string explain_steps(const Json& program);

}  // namespace fsdp_cts
