#include "harness/judge/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace fsdp_cts {
namespace {

HostTensor floats(std::vector<double> values, DType dtype = DType::float32) {
  const auto count = static_cast<std::int64_t>(values.size());
  return make_tensor(dtype, {count}, values);
}

TEST(Compare, ZerosAreEqualWhateverTheirSign) {
  EXPECT_FALSE(compare(floats({-0.0}), floats({0.0}), {}, true));
}

TEST(Compare, NanEqualsNothing) {
  EXPECT_TRUE(compare(floats({NAN}), floats({NAN}), {}, true));
  EXPECT_TRUE(compare(floats({NAN}), floats({NAN}), upstream_tolerance(DType::float32), true));
}

TEST(Compare, InfinityEqualsItself) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(compare(floats({inf}), floats({inf}), upstream_tolerance(DType::float32), true));
  EXPECT_TRUE(compare(floats({inf}), floats({-inf}), upstream_tolerance(DType::float32), true));
  EXPECT_TRUE(compare(floats({3e38}), floats({inf}), {false, 1, 0}, true));
}

TEST(Compare, OneUlpIsNotExact) {
  const Difference difference = compare(floats({1, std::nextafter(2.0f, 3.0f)}), floats({1, 2}), {}, true);
  EXPECT_EQ(difference.kind, Difference::Kind::value);
  EXPECT_EQ(difference.index, 1);
  EXPECT_EQ(difference.ulp, 1);
  EXPECT_EQ(difference.exact_elements, 1);
  EXPECT_EQ(difference.differing, 1);
}

TEST(Compare, UlpIsTheCoarserDtypes) {
  EXPECT_EQ(ulp_distance(1.0078125, 1, DType::bfloat16, DType::float32), 1);
  EXPECT_EQ(ulp_distance(1 + std::ldexp(1.0, -10), 1, DType::float16, DType::float64), 1);
  EXPECT_EQ(ulp_distance(std::ldexp(1.0, -149), 0, DType::float32, DType::float32), 1);
  EXPECT_TRUE(std::isinf(ulp_distance(1, INFINITY, DType::float32, DType::float32)));
}

TEST(Compare, Int64BeyondDoublesIsExact) {
  HostTensor a = floats({0}, DType::int64), b = a;
  const std::int64_t big = (std::int64_t{1} << 53) + 1, near = std::int64_t{1} << 53;
  std::memcpy(a.bytes.data(), &big, 8);
  std::memcpy(b.bytes.data(), &near, 8);
  EXPECT_TRUE(compare(a, b, upstream_tolerance(DType::float32), true));
}

TEST(Compare, ToleranceIsRelativeToTheExpected) {
  const Tolerance one_percent{false, 0.01, 0};
  EXPECT_FALSE(compare(floats({101}), floats({100}), one_percent, true));
  EXPECT_TRUE(compare(floats({101.01}), floats({100}), one_percent, true));
}

TEST(Tolerance, FromTheScenario) {
  EXPECT_TRUE(tolerance_from(nullptr, Lane::exact, DType::float32, DType::float32).exact);
  EXPECT_EQ(tolerance_from(nullptr, Lane::tolerance, DType::float32, DType::float32).rtol, 1.3e-6);
  EXPECT_EQ(tolerance_from("upstream", Lane::exact, DType::float16, DType::float32).rtol, 1e-3);
  EXPECT_EQ(tolerance_from("bfloat16", Lane::exact, DType::float32, DType::float32).rtol, 1.6e-2);
  EXPECT_EQ(
      tolerance_from(Json{{"rtol", 0.5}, {"atol", 0.25}}, Lane::exact, DType::float32, DType::float32).atol,
      0.25);
  EXPECT_TRUE(tolerance_from("exact", Lane::tolerance, DType::float32, DType::float32).exact);
  EXPECT_TRUE(tolerance_from("upstream", Lane::tolerance, DType::int64, DType::int64).exact);
}

TEST(Unflatten, RowMajor) {
  EXPECT_EQ(unflatten(11, {4, 4}), (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(unflatten(0, {}).empty());
}

}  // namespace
}  // namespace fsdp_cts
