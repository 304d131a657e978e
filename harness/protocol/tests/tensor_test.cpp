#include "harness/protocol/tensor.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace fsdp_cts {
namespace {

TEST(DType, NamesAndSizesAreThoseOfTheProtocol) {
  EXPECT_EQ(dtype_name(DType::bfloat16), "bfloat16");
  EXPECT_EQ(dtype_name(DType::boolean), "bool");
  EXPECT_EQ(dtype_from_name("int64"), DType::int64);
  EXPECT_EQ(dtype_size(DType::float16), 2u);
  EXPECT_TRUE(is_floating(DType::float64));
  EXPECT_FALSE(is_floating(DType::uint8));
}

TEST(DType, UnknownNameSaysWhatIsKnown) {
  try {
    dtype_from_name("float8");
    FAIL() << "accepted float8";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("float8"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("bfloat16"), std::string::npos);
  }
}

// The neighbours of a value among all numbers of a 16-bit format decide what rounding to nearest even must
// give.
std::uint16_t nearest_by_search(float value, float (*decode)(std::uint16_t), std::uint16_t infinity) {
  std::uint16_t low = 0, high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (decode(middle) <= value ? low : high) = middle;
  }
  // One step beyond the largest number stands in for infinity, as IEEE 754 defines overflow.
  const double above = high == infinity ? 2.0 * decode(static_cast<std::uint16_t>(infinity - 1)) -
                                              decode(static_cast<std::uint16_t>(infinity - 2))
                                        : decode(high);
  const double distance_low = static_cast<double>(value) - decode(low), distance_high = above - value;
  if (distance_low != distance_high) return distance_low < distance_high ? low : high;
  return low % 2 == 0 ? low : high;
}

struct Format {
  std::uint16_t (*encode)(float);
  float (*decode)(std::uint16_t);
  std::uint16_t infinity;
};

class SixteenBits : public testing::TestWithParam<Format> {};

TEST_P(SixteenBits, EveryNumberSurvivesTheRoundTrip) {
  const auto [encode, decode, infinity] = GetParam();
  for (unsigned bits = 0; bits <= infinity; ++bits) {
    ASSERT_EQ(encode(decode(static_cast<std::uint16_t>(bits))), bits);
    ASSERT_EQ(encode(decode(static_cast<std::uint16_t>(bits | 0x8000))), bits | 0x8000);
  }
}

TEST_P(SixteenBits, EveryMidpointAndItsNeighboursRoundToNearestEven) {
  const auto [encode, decode, infinity] = GetParam();
  for (unsigned bits = 0; bits + 1 < infinity; ++bits) {
    const float low = decode(static_cast<std::uint16_t>(bits)),
                high = decode(static_cast<std::uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    for (const float value : {std::nextafter(middle, low), middle, std::nextafter(middle, high)}) {
      ASSERT_EQ(encode(value), nearest_by_search(value, decode, infinity))
          << "bits " << bits << " value " << value;
      ASSERT_EQ(encode(-value), nearest_by_search(value, decode, infinity) | 0x8000);
    }
  }
}

TEST_P(SixteenBits, InfinityAndNan) {
  const auto [encode, decode, infinity] = GetParam();
  EXPECT_EQ(encode(std::numeric_limits<float>::infinity()), infinity);
  EXPECT_EQ(encode(-std::numeric_limits<float>::infinity()), infinity | 0x8000);
  EXPECT_EQ(encode(std::numeric_limits<float>::max()), infinity);
  EXPECT_TRUE(std::isnan(decode(encode(std::numeric_limits<float>::quiet_NaN()))));
}

INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits,
                         testing::Values(Format{to_bfloat16_bits, from_bfloat16_bits, 0x7F80},
                                         Format{to_float16_bits, from_float16_bits, 0x7C00}),
                         [](const auto& format) { return format.index == 0 ? "bfloat16" : "float16"; });

TEST(SixteenBitsKnown, PublishedValues) {
  EXPECT_EQ(to_float16_bits(65504.0f), 0x7BFF);
  EXPECT_EQ(to_float16_bits(65520.0f), 0x7C00);
  EXPECT_EQ(to_float16_bits(std::ldexp(1.0f, -24)), 0x0001);
  EXPECT_EQ(to_float16_bits(0.333333333f), 0x3555);
  EXPECT_EQ(to_bfloat16_bits(3.14159265f), 0x4049);
  EXPECT_EQ(to_bfloat16_bits(1.00390625f), 0x3F80);  // a tie, to even
  EXPECT_EQ(to_bfloat16_bits(1.01171875f), 0x3F82);  // a tie, to even
}

TEST(MakeTensor, RoundsOnceFromDouble) {
  // Through float32 this would land on a tie and go the other way.
  const double just_above_tie = 1.0 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);
  EXPECT_EQ(make_tensor(DType::bfloat16, {1}, {just_above_tie}).element(0), 1.0 + std::ldexp(1.0, -7));
  const double above_half_tie = 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  EXPECT_EQ(make_tensor(DType::float16, {1}, {above_half_tie}).element(0), 1.0 + std::ldexp(1.0, -10));
}

TEST(MakeTensor, EveryDtypeGivesItsElementsBack) {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::int64,
                            DType::int32, DType::int16, DType::int8}) {
    const HostTensor tensor = make_tensor(dtype, {2, 2}, {0, 1, -3, 100});
    EXPECT_EQ(tensor.bytes.size(), 4 * dtype_size(dtype));
    EXPECT_EQ(tensor.element(2), -3) << dtype_name(dtype);
    EXPECT_EQ(tensor.element(3), 100) << dtype_name(dtype);
  }
  EXPECT_EQ(make_tensor(DType::uint8, {1}, {255}).element(0), 255);
  EXPECT_EQ(make_tensor(DType::boolean, {1}, {7}).element(0), 1);
}

TEST(MakeTensor, RefusesWhatDoesNotFit) {
  EXPECT_THROW(make_tensor(DType::int8, {1}, {128}), std::invalid_argument);
  EXPECT_THROW(make_tensor(DType::uint8, {1}, {-1}), std::invalid_argument);
  EXPECT_THROW(make_tensor(DType::int64, {1}, {std::ldexp(1.0, 63)}), std::invalid_argument);
  EXPECT_THROW(make_tensor(DType::int32, {1}, {std::nan("")}), std::invalid_argument);
  EXPECT_THROW(make_tensor(DType::float32, {3}, {1, 2}), std::invalid_argument);
}

TEST(HostTensor, NumelOfScalarsAndEmptyTensors) {
  EXPECT_EQ((HostTensor{DType::float32, {}, {}}.numel()), 1);
  EXPECT_EQ((HostTensor{DType::float32, {3, 0, 2}, {}}.numel()), 0);
}

}  // namespace
}  // namespace fsdp_cts
