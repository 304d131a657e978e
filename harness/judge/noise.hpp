// How far rounding alone moves the numbers of a case. Kernels of another processor add in another order and
// round elsewhere, so two right answers differ; by how much depends on the case, and the reference can tell:
// it runs the case once as it is and again with other roundings (wider types, every operator's result moved
// by its rounding unit, another order of summation). clauses.md "Tolerances" has the rule.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "harness/judge/evidence.hpp"
#include "harness/judge/finding.hpp"

namespace fsdp_cts {

// The part of an observation's largest element that a tensor's noise may be. Sixteen of that are 1/64, the
// share that upstream allows bf16.
constexpr double noisy_share = 0x1p-10;

class Noise {
 public:
  Noise() = default;
  // `others` are the same case in other roundings. A value that is absent or of another shape there adds
  // nothing.
  Noise(const Evidence& native, const std::vector<const Evidence*>& others);

  // What counts for the tensor at `place`: the largest difference in any of its elements, and no more than
  // noisy_share of the largest element that was observed with it (same step, what and model); 0 where nothing
  // is known. Looked up as `counterparts` does: the same rank's, else the one for all ranks, else the largest
  // over ranks.
  double at(const Place& place) const;

  struct Scale {
    double noise = 0;     // as measured
    double observed = 0;  // largest element of the whole observation
  };
  const std::map<Place, Scale>& scales() const { return scales_; }

 private:
  std::map<Place, Scale> scales_;
};

// Noise that is no small part of the signal cannot be distinguished from a fault: the first value with more
// than noisy_share that an `equal` of the case compares within a tolerance (code `noisy`, setup_error), or
// nothing. Cases in 16-bit dtypes are never refused: where they round is prescribed, so implementations that
// differ in kernels alone mostly agree in every bit, whatever a float64 run says.
std::optional<Finding> first_noisy(const Case& a_case, const Noise& noise);

}  // namespace fsdp_cts
