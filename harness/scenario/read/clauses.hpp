// The numbered rules of conformance/clauses.md, as far as programs need them: which ids there are.
#pragma once

#include <map>
#include <string>

#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts {

struct Clause {
  std::string level;  // MUST, or another word of RFC 2119
  std::string rule;
  bool law = false;  // the judge holds every case to it; no line of a scenario needs to
  SourcePlace place;
};

// By id: every table row of clauses.md that begins with one. An id that stands twice, or a file that holds no
// clause, is a mistake.
std::map<std::string, Clause> load_clauses(const std::filesystem::path& conformance, Mistakes& mistakes);

}  // namespace fsdp_cts
