// The judgement of one case.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fsdp_cts {

// Ordered from best to worst; the verdict of a case is the worst of its parts. Only `pass` is pass.
enum class VerdictKind {
  pass,
  xfail,
  skipped,
  unsupported,
  xpass,
  flaky,
  unresolved,
  fail,
  crash,
  hang,
  setup_error
};
std::string_view verdict_name(VerdictKind kind);
VerdictKind verdict_from_name(std::string_view name);  // throws std::invalid_argument naming the known ones

struct Counts {
  long elements = 0;        // compared with a truth
  long exact_elements = 0;  // of these, bitwise
  long tensors = 0;
  long collectives = 0;
  long checks = 0;  // expectations and laws evaluated
  int ranks = 0;    // that answered
};

struct Verdict {
  std::string case_id;
  VerdictKind kind = VerdictKind::unresolved;
  std::string code;  // stable short name: "value", "dtype", "layout", "collective_count", "golden_missing",
                     // "signal", …
  std::string summary;  // one line for a person: the first divergence
  // First divergence: {expectation, step, verb, iteration, phase, what, parameter, rank, index, actual,
  // expected, ulp, golden, reference}
  nlohmann::ordered_json divergence;
  Counts counts;
  double max_ulp = 0;  // largest difference seen in a passing comparison
  double seconds = 0;
};

}  // namespace fsdp_cts
