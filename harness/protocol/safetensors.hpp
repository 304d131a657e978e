// Reading and writing safetensors, the only file format tensors travel in. The reader trusts nothing: see
// docs in trust rules of clauses.md (header length and UTF-8, no duplicate keys, offsets contiguous and
// covering, checked sizes).
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

#include "harness/protocol/tensor.hpp"

namespace fsdp_cts {

// `code` is stable and distinct per kind of lie ("header_too_large", "offsets_overlap", …): tests and reports
// use it.
class SafetensorsError : public std::runtime_error {
 public:
  SafetensorsError(std::string code, const std::string& what)
      : std::runtime_error(what), code(std::move(code)) {}
  const std::string code;
};

// Throws SafetensorsError for a file that lies or is cut, std::system_error for one that cannot be read.
TensorMap read_safetensors(const std::filesystem::path& file);
// The same from a file that is open already; it stays open.
TensorMap read_safetensors(int descriptor, const std::string& name_for_errors);
TensorMap parse_safetensors(std::string_view bytes, const std::string& name_for_errors);

// Deterministic bytes for equal content (keys sorted). Written beside and renamed: a reader never sees half a
// file.
std::string serialize_safetensors(const TensorMap& tensors);
void write_safetensors(const std::filesystem::path& file, const TensorMap& tensors);

}  // namespace fsdp_cts
