// One thing that is not as it should be, and the list of them that is filled while a case is judged.
#pragma once

#include <string>
#include <vector>

#include "harness/judge/verdict.hpp"

namespace fsdp_cts {

struct Finding {
  VerdictKind kind = VerdictKind::fail;
  std::string code;                                                      // stable, see Verdict::code
  std::string summary;                                                   // a sentence for a person
  nlohmann::ordered_json divergence = nlohmann::ordered_json::object();  // keys as in Verdict::divergence
  int step = -1;  // place in the program, -1: none; findings are reported in program order
};

// What expectations and laws write into.
struct Outcome {
  std::vector<Finding> findings;
  Counts counts;
  double max_ulp = 0;
  double max_noise = 0;
  bool noise_due = false;  // something lies outside a tolerance to which noise would count, and none is known
};

}  // namespace fsdp_cts
