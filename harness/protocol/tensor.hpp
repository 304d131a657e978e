// A tensor as the harness sees it: dtype, shape, bytes on the host. No tensor library is needed to judge one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp_cts {

enum class DType { float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, boolean };

// Name as it stands in the protocol ("bfloat16"); size in bytes.
std::string_view dtype_name(DType dtype);
DType dtype_from_name(std::string_view name);  // throws std::invalid_argument naming the known ones
std::size_t dtype_size(DType dtype);
bool is_floating(DType dtype);

struct HostTensor {
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;  // row-major, contiguous
  std::vector<std::byte> bytes;     // little-endian elements

  std::int64_t numel() const;
  // Element i widened to double (exact for every dtype except int64 beyond 2^53).
  double element(std::int64_t i) const;
};

// Round-to-nearest-even conversions, the only ones the suite uses.
std::uint16_t to_bfloat16_bits(float value);
std::uint16_t to_float16_bits(float value);
float from_bfloat16_bits(std::uint16_t bits);
float from_float16_bits(std::uint16_t bits);

// A tensor from doubles, each rounded once to `dtype`.
HostTensor make_tensor(DType dtype, std::vector<std::int64_t> shape, const std::vector<double>& values);

using TensorMap = std::map<std::string, HostTensor>;

}  // namespace fsdp_cts
