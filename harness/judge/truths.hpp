// The two independent truths a testee is compared with, and what is said where one of them is missing or they
// disagree.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "harness/judge/evidence.hpp"
#include "harness/judge/finding.hpp"
#include "harness/judge/noise.hpp"

namespace fsdp_cts {

struct Truth {
  const Evidence* evidence = nullptr;
  std::string
      reduction_order;  // rank | ring | unspecified: how reductions over more than two ranks were added
  std::optional<Finding> problem;  // why there is no evidence; always a setup_error
};

// A truth together with its evidence.
struct OwnedTruth {
  Evidence evidence;
  std::string reduction_order;
  std::optional<Finding> problem;
  Truth truth() const { return {problem ? nullptr : &evidence, reduction_order, problem}; }
};

struct Truths {
  Truth reference;
  Truth golden;
  const Noise* noise = nullptr;  // null: the reference was not asked for it
  const Truth& named(const std::string& name) const { return name == "golden" ? golden : reference; }
};

// Which truths the case's expectations ask for.
struct TruthsNeeded {
  bool reference = false;
  bool golden = false;
};
TruthsNeeded truths_needed(const Case& a_case);

// What the case compares with the truth of this name, "reference" or "golden": names as `observe` has them.
std::set<std::string> compared_with(const Case& a_case, const std::string& truth);

}  // namespace fsdp_cts
