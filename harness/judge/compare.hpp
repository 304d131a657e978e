// Comparing two tensors.
//
// Exact: every element has the same bits. Two exceptions, stated once for the whole suite: zeros are equal
// whatever their sign (kernels differ in whether a sum starts at +0 or with its first term, and no rule of
// FSDP decides it), and a NaN equals nothing, not even itself. Tolerance: |actual - expected| <= atol + rtol
// * |expected|, or <= noise_factor * noise, whichever is larger; infinities are equal to themselves; NaN as
// above. Integers and booleans are always compared
// exactly.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/protocol/tensor.hpp"
#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// How many times a tensor's noise two right answers may lie apart.
constexpr double noise_factor = 16;

struct Tolerance {
  bool exact = true;
  double rtol = 0;
  double atol = 0;
  double noise = 0;  // how far rounding alone moves the tensor (Noise); 0: not derived
};
// upstream's defaults by dtype: float16 1e-3, bfloat16 1.6e-2, float32 1.3e-6 (atol 1e-5), float64 1e-7 (atol
// 1e-7).
Tolerance upstream_tolerance(DType dtype);
// `spec` is an expectation's `tolerance` (LANGUAGE.md §7), null for the lane's default: exact in lane exact,
// else upstream. With two dtypes the coarser one decides.
Tolerance tolerance_from(const Json& spec, Lane lane, DType actual, DType expected);

struct Difference {
  enum class Kind { none, dtype, shape, value } kind = Kind::none;
  std::int64_t index = 0;  // flat index of the first element that differs
  double actual = 0, expected = 0, ulp = 0;
  long differing = 0;  // elements that differ
  // [first, count], flat, of what differs; the first `max_stretches` of them.
  std::vector<std::array<std::int64_t, 2>> stretches;
  static constexpr std::size_t max_stretches = 512;
  // Of the whole comparison:
  long elements = 0, exact_elements = 0;
  double max_ulp = 0;
  double max_noise = 0;  // largest distance, in units of noise, that nothing but the noise allowed
  Tolerance tolerance;   // by which it was judged
  explicit operator bool() const { return kind != Kind::none; }
};

// With `check_dtype` a difference in dtype is one of its own, found before values.
Difference compare(const HostTensor& actual, const HostTensor& expected, const Tolerance& tolerance,
                   bool check_dtype);

// Distance in units in the last place of the coarser of both dtypes, at `expected`.
double ulp_distance(double actual, double expected, DType actual_dtype, DType expected_dtype);

// Flat index of the first NaN, or -1.
std::int64_t first_nan(const HostTensor& tensor);

// [2, 3] for flat index 11 of shape [4, 4].
std::vector<std::int64_t> unflatten(std::int64_t index, const std::vector<std::int64_t>& shape);

}  // namespace fsdp_cts
