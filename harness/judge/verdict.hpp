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

// How many `equal` expectations of a case each truth judged. A recording made in another order of reductions
// than the testee's is left out where the order matters.
struct TruthCounts {
  long reference = 0;
  long golden = 0;
  long golden_left_out = 0;
};

struct Counts {
  long elements = 0;        // compared with a truth
  long exact_elements = 0;  // of these, bitwise
  long tensors = 0;
  long collectives = 0;
  long witnessed =
      0;            // of these, in cases whose bytes on the wire were counted and are enough for the traces
  long checks = 0;  // expectations and laws evaluated
  int ranks = 0;    // that answered
  TruthCounts truths = {};
};

struct Verdict {
  std::string case_id;
  VerdictKind kind = VerdictKind::unresolved;
  std::string code;  // stable short name: "value", "dtype", "layout", "collective_count", "golden_missing",
                     // "signal", …
  std::string summary;  // one line for a person: the first divergence
  // First divergence: {expectation, step, verb, iteration, phase, what, parameter, rank, index, actual,
  // expected, ulp, golden, reference, tensor: {shape, differing: [[first, count], …], not_shown, held: [[rank,
  // first, count], …]}}, flat and row-major
  nlohmann::ordered_json divergence;
  Counts counts;
  double max_ulp = 0;      // largest difference seen in a passing comparison
  double max_noise = 0;    // largest one that noise alone allowed, in units of the tensor's noise
  bool noise_due = false;  // not final: to be judged again with the case's noise
  double seconds = 0;
};

}  // namespace fsdp_cts
