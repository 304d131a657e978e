#include "harness/judge/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace fsdp_cts {
namespace {

// Explicit mantissa bits and least exponent of a normal number.
struct Format {
  int mantissa;
  int min_exponent;
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return {52, -1022};
    case DType::float32:
      return {23, -126};
    case DType::float16:
      return {10, -14};
    case DType::bfloat16:
      return {7, -126};
    default:
      return {52, -1022};
  }
}

DType coarser(DType a, DType b) {
  if (!is_floating(a)) return b;
  if (!is_floating(b)) return a;
  return format_of(a).mantissa <= format_of(b).mantissa ? a : b;
}

bool same_element(double actual, double expected) {
  return actual == expected;
}  // ±0 equal, NaN never

bool close(double actual, double expected, const Tolerance& tolerance) {
  if (same_element(actual, expected)) return true;
  if (!std::isfinite(actual) || !std::isfinite(expected)) return false;
  return std::abs(actual - expected) <= tolerance.atol + tolerance.rtol * std::abs(expected);
}

// In units of the tensor's noise; infinity where no noise can explain the distance.
double noise_distance(double actual, double expected, const Tolerance& tolerance) {
  if (tolerance.noise <= 0 || !std::isfinite(actual) || !std::isfinite(expected))
    return std::numeric_limits<double>::infinity();
  return std::abs(actual - expected) / tolerance.noise;
}

}  // namespace

Tolerance upstream_tolerance(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return {false, 1e-3, 1e-5};
    case DType::bfloat16:
      return {false, 1.6e-2, 1e-5};
    case DType::float32:
      return {false, 1.3e-6, 1e-5};
    case DType::float64:
      return {false, 1e-7, 1e-7};
    default:
      return {};
  }
}

Tolerance tolerance_from(const Json& spec, Lane lane, DType actual, DType expected) {
  if (!is_floating(actual) && !is_floating(expected)) return {};
  const DType dtype = coarser(actual, expected);
  if (spec.is_null()) return lane == Lane::exact ? Tolerance{} : upstream_tolerance(dtype);
  if (spec.is_object()) return {false, spec.value("rtol", 0.0), spec.value("atol", 0.0)};
  const std::string text = spec.get<std::string>();
  if (text == "exact") return {};
  if (text == "upstream") return upstream_tolerance(dtype);
  return upstream_tolerance(dtype_from_name(text));
}

double ulp_distance(double actual, double expected, DType actual_dtype, DType expected_dtype) {
  if (actual == expected) return 0;
  if (!std::isfinite(actual) || !std::isfinite(expected)) return std::numeric_limits<double>::infinity();
  const Format format = format_of(coarser(actual_dtype, expected_dtype));
  const int exponent =
      expected == 0 ? format.min_exponent : std::max(std::ilogb(expected), format.min_exponent);
  return std::abs(actual - expected) / std::ldexp(1.0, exponent - format.mantissa);
}

std::int64_t first_nan(const HostTensor& tensor) {
  if (!is_floating(tensor.dtype)) return -1;
  const std::int64_t count = tensor.numel();
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(tensor.element(i))) return i;
  }
  return -1;
}

std::vector<std::int64_t> unflatten(std::int64_t index, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> result(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    const std::int64_t size = std::max<std::int64_t>(shape[dim], 1);
    result[dim] = index % size;
    index /= size;
  }
  return result;
}

Difference compare(const HostTensor& actual, const HostTensor& expected, const Tolerance& tolerance,
                   bool check_dtype) {
  Difference difference;
  difference.tolerance = tolerance;
  if (check_dtype && actual.dtype != expected.dtype) {
    difference.kind = Difference::Kind::dtype;
    return difference;
  }
  if (actual.shape != expected.shape) {
    difference.kind = Difference::Kind::shape;
    return difference;
  }
  difference.elements = actual.numel();
  if (actual.dtype == expected.dtype && actual.bytes == expected.bytes && first_nan(actual) < 0) {
    difference.exact_elements = difference.elements;
    return difference;
  }
  const bool integers = !is_floating(actual.dtype) && actual.dtype == expected.dtype;
  const std::size_t size = dtype_size(actual.dtype);
  for (std::int64_t i = 0; i < difference.elements; ++i) {
    const double a = actual.element(i), e = expected.element(i);
    // int64 beyond 2^53 would collide as doubles: integers of one dtype are compared by their bytes.
    const auto at = static_cast<std::size_t>(i) * size;
    const bool same =
        integers ? std::memcmp(&actual.bytes[at], &expected.bytes[at], size) == 0 : same_element(a, e);
    if (same) {
      ++difference.exact_elements;
      continue;
    }
    const double ulp = ulp_distance(a, e, actual.dtype, expected.dtype);
    difference.max_ulp = std::max(difference.max_ulp, ulp);
    if (!tolerance.exact && !integers) {
      if (close(a, e, tolerance)) continue;
      const double distance = noise_distance(a, e, tolerance);
      if (distance <= noise_factor) {
        difference.max_noise = std::max(difference.max_noise, distance);
        continue;
      }
    }
    if (difference.kind == Difference::Kind::none) {
      difference.kind = Difference::Kind::value;
      difference.index = i;
      difference.actual = a;
      difference.expected = e;
      difference.ulp = ulp;
    }
    ++difference.differing;
    auto& stretches = difference.stretches;
    if (!stretches.empty() && stretches.back()[0] + stretches.back()[1] == i)
      ++stretches.back()[1];
    else if (stretches.size() < Difference::max_stretches)
      stretches.push_back({i, 1});
  }
  return difference;
}

}  // namespace fsdp_cts
