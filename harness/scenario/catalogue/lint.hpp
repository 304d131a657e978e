// Whether what scenarios claim and what their lines do fit together: what no single case can show.
#pragma once

#include <filesystem>
#include <vector>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// Refuses, of the files that `cases` are from, with all cases of each:
//   - a clause id that clauses.md has twice or not at all
//   - a clause in a scenario's header that none of its lines carries in any case, and one that a line carries
//     and the header lacks
//   - an observation that no expectation looks at, in any case of the file
//   - `differ` with an `only` that matches none of the names it is about
// Throws ScenarioError with file and line of every mistake.
void check_files(const std::filesystem::path& conformance, const std::vector<Case>& cases);

// The same, and that every clause of clauses.md is carried by some line. `cases` are all of the suite's, as
// load_cases gives them.
void check_suite(const std::filesystem::path& conformance, const std::vector<Case>& cases);

}  // namespace fsdp_cts
