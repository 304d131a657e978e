#include "harness/protocol/tensor.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace fsdp_cts {

static_assert(std::endian::native == std::endian::little,
              "elements are kept in file order, which is little-endian");

namespace {

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  std::size_t size;
  bool floating;
};

constexpr std::array<DTypeFacts, 10> dtypes{{
    {DType::float64, "float64", 8, true},
    {DType::float32, "float32", 4, true},
    {DType::float16, "float16", 2, true},
    {DType::bfloat16, "bfloat16", 2, true},
    {DType::int64, "int64", 8, false},
    {DType::int32, "int32", 4, false},
    {DType::int16, "int16", 2, false},
    {DType::int8, "int8", 1, false},
    {DType::uint8, "uint8", 1, false},
    {DType::boolean, "bool", 1, false},
}};

const DTypeFacts& facts(DType dtype) {
  return dtypes.at(static_cast<std::size_t>(dtype));
}

// Rounds to a 16-bit format with `mantissa_bits` stored bits whose smallest normal number is
// 2^lowest_exponent.
std::uint16_t round_to_16_bits(double value, int mantissa_bits, int lowest_exponent, std::uint16_t infinity) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  int exponent = lowest_exponent;
  if (magnitude >= std::ldexp(1.0, lowest_exponent)) exponent = std::ilogb(magnitude);
  const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  // The implicit leading one of `units` adds 1 to the exponent field; so does a carry out of the mantissa.
  const long bits =
      (static_cast<long>(exponent - lowest_exponent) << mantissa_bits) + static_cast<long>(units);
  return sign | (bits >= infinity ? infinity : static_cast<std::uint16_t>(bits));
}

std::uint16_t bfloat16_from_double(double value) {
  return std::isnan(value) ? 0x7FC0 : round_to_16_bits(value, 7, -126, 0x7F80);
}

std::uint16_t float16_from_double(double value) {
  if (std::isnan(value)) return std::signbit(value) ? 0xFE00 : 0x7E00;
  return round_to_16_bits(value, 10, -14, 0x7C00);
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T, typename Convert>
void store_all(std::vector<std::byte>& bytes, const std::vector<double>& values, Convert convert) {
  bytes.resize(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T element = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
  }
}

template <typename T>
void store_integers(std::vector<std::byte>& bytes, const std::vector<double>& values) {
  store_all<T>(bytes, values, [](double value) {
    const double rounded = std::nearbyint(value);
    // 2^63 is the first double beyond int64; for narrower types max + 1 is exact as well.
    const double beyond = std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (!(rounded >= static_cast<double>(std::numeric_limits<T>::min()) && rounded < beyond))
      throw std::invalid_argument("value " + std::to_string(value) + " does not fit an integer tensor of " +
                                  std::to_string(sizeof(T)) + "-byte elements");
    return static_cast<T>(rounded);
  });
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  return facts(dtype).name;
}
std::size_t dtype_size(DType dtype) {
  return facts(dtype).size;
}
bool is_floating(DType dtype) {
  return facts(dtype).floating;
}

DType dtype_from_name(std::string_view name) {
  for (const DTypeFacts& entry : dtypes)
    if (entry.name == name) return entry.dtype;
  std::string message = "unknown dtype '" + std::string(name) + "'; known are";
  for (const DTypeFacts& entry : dtypes) message.append(" ").append(entry.name);
  throw std::invalid_argument(message);
}

std::int64_t HostTensor::numel() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

double HostTensor::element(std::int64_t i) const {
  const std::byte* at = bytes.data() + static_cast<std::size_t>(i) * dtype_size(dtype);
  switch (dtype) {
    case DType::float64:
      return load<double>(at);
    case DType::float32:
      return load<float>(at);
    case DType::float16:
      return from_float16_bits(load<std::uint16_t>(at));
    case DType::bfloat16:
      return from_bfloat16_bits(load<std::uint16_t>(at));
    case DType::int64:
      return static_cast<double>(load<std::int64_t>(at));
    case DType::int32:
      return load<std::int32_t>(at);
    case DType::int16:
      return load<std::int16_t>(at);
    case DType::int8:
      return load<std::int8_t>(at);
    case DType::uint8:
      return load<std::uint8_t>(at);
    case DType::boolean:
      return load<std::uint8_t>(at) != 0;
  }
  throw std::logic_error("HostTensor with an impossible dtype");
}

std::uint16_t to_bfloat16_bits(float value) {
  return bfloat16_from_double(value);
}
std::uint16_t to_float16_bits(float value) {
  return float16_from_double(value);
}

float from_bfloat16_bits(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float from_float16_bits(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1F;
  const std::uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {  // zero and subnormals: units of 2^-24, exact in float32
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

HostTensor make_tensor(DType dtype, std::vector<std::int64_t> shape, const std::vector<double>& values) {
  HostTensor tensor{dtype, std::move(shape), {}};
  if (tensor.numel() != static_cast<std::int64_t>(values.size()))
    throw std::invalid_argument("make_tensor: " + std::to_string(values.size()) + " values for a shape of " +
                                std::to_string(tensor.numel()) + " elements");
  switch (dtype) {
    case DType::float64:
      store_all<double>(tensor.bytes, values, [](double v) { return v; });
      break;
    case DType::float32:
      store_all<float>(tensor.bytes, values, [](double v) { return static_cast<float>(v); });
      break;
    case DType::float16:
      store_all<std::uint16_t>(tensor.bytes, values, float16_from_double);
      break;
    case DType::bfloat16:
      store_all<std::uint16_t>(tensor.bytes, values, bfloat16_from_double);
      break;
    case DType::int64:
      store_integers<std::int64_t>(tensor.bytes, values);
      break;
    case DType::int32:
      store_integers<std::int32_t>(tensor.bytes, values);
      break;
    case DType::int16:
      store_integers<std::int16_t>(tensor.bytes, values);
      break;
    case DType::int8:
      store_integers<std::int8_t>(tensor.bytes, values);
      break;
    case DType::uint8:
      store_integers<std::uint8_t>(tensor.bytes, values);
      break;
    case DType::boolean:
      store_all<std::uint8_t>(tensor.bytes, values,
                              [](double v) { return static_cast<std::uint8_t>(v != 0); });
      break;
  }
  return tensor;
}

}  // namespace fsdp_cts
