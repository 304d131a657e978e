// Selecting cases by name and attribute:
//
//   F2MP/*/test_compute_dtype*       a glob over case ids: `*` any text, `?` one character, nothing else special
//   F2MP/Class/test_compute_dtype    without a wildcard: a case id, or a scenario id and so all its cases
//   seed:F2MP lane:exact world:2     attributes; the value may be a glob
//   label:gpu                        what a case requires (gpu, cuda, nccl, compiler); label:cpu: it requires nothing
//   label:quick                      the quick subset; label:skipped: what upstream returns early from
//
// Filters on the same attribute widen a selection, filters on different attributes narrow it:
// `seed:F2MP seed:UOP lane:exact` is (F2MP or UOP) and exact. No filter selects everything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/case.hpp"
#include "harness/scenario/catalogue/machine.hpp"

namespace fsdp_cts {

class Filter {
 public:
  // Throws std::invalid_argument for an unknown attribute or a value it cannot have, naming the known ones.
  explicit Filter(const std::vector<std::string>& terms);
  bool accepts(const Case& a_case) const;
  // False only if no case of this scenario or of its twins can be accepted, whatever its axes.
  bool may_accept_some_of(const std::string& method) const;

 private:
  struct Attribute {
    std::string name;
    std::vector<std::string> patterns;
  };
  std::vector<Attribute> attributes_;
};

struct FilterResult {
  std::vector<Case> cases;             // in the order given
  std::vector<std::string> unmatched;  // terms that match no case at all: most likely misspelt
};
FilterResult select_cases(const std::vector<Case>& cases, const std::vector<std::string>& terms);

// At most `count` (1 or more) cases of every scenario, spread over its axes and in the order given. Counted
// are those that `machine` can run; of the others none is left.
std::vector<Case> few_of_each_scenario(std::vector<Case> cases, int count, const Machine& machine);

}  // namespace fsdp_cts
