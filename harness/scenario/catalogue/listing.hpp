// One line of `fsdp-cts list` per case.
#pragma once

#include <string>
#include <vector>

#include "harness/scenario/catalogue/machine.hpp"

namespace fsdp_cts {

struct ListingRow {
  std::string id, scenario, seed;
  int world = 0;
  std::string lane;
  std::vector<std::string> requires_;
  bool runnable = false;
  std::string reason;     // why not; empty when runnable
  int seed_cases = 0;     // upstream cases it stands for; 0 for additions
  std::string cpu_form;   // where a CPU does less than upstream's case: what it does instead; else empty
  std::string continues;  // id of the case whose checkpoint it loads; else empty
  std::vector<std::string> clauses;  // that its expectations hold somebody to
};

std::vector<ListingRow> list_cases(const std::vector<Case>& cases, const Machine& machine);

// Array of {id, scenario, seed, world, lane, requires, runnable, reason, seed_cases, cpu_form, continues, clauses}; a
// contract for scripts.
Json listing_json(const std::vector<ListingRow>& rows);

}  // namespace fsdp_cts
