// The header of a safetensors file: what each tensor claims to be and where its bytes lie. Internal to the
// reader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/protocol/tensor.hpp"

namespace fsdp_cts {

constexpr std::uint64_t safetensors_header_limit = 100'000'000;
constexpr std::size_t safetensors_prefix = 8;  // little-endian length of the header

struct TensorClaim {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes behind the header
};

// Length of the header of a file of `file_size` bytes that starts with `prefix`. Throws SafetensorsError.
std::uint64_t safetensors_header_length(std::string_view prefix, std::uint64_t file_size,
                                        const std::string& file);

// Claims in the order of their bytes; proven to fill `data_size` bytes without hole or overlap. Throws
// SafetensorsError.
std::vector<TensorClaim> parse_safetensors_header(std::string_view header, std::uint64_t data_size,
                                                  const std::string& file);

// The name a dtype has in the file format ("BF16").
std::string_view safetensors_dtype_name(DType dtype);

}  // namespace fsdp_cts
