#pragma once

#include "harness/scenario/case.hpp"
#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts {

// Names, calls and ties of a resolved Graph refer to what exists. `written` gives the places. Ties are looked
// at only when nothing below is broken.
void check_graph(const Json& graph, const DataTree& written, bool children_are_sound, Mistakes& mistakes);

}  // namespace fsdp_cts
