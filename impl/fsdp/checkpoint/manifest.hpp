#pragma once
// The manifest of a checkpoint: which part of which tensor lies where. Lines of words; the last one has the
// checksum of all before it.
#include <ATen/core/ScalarType.h>

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fsdp/sharded_tensor.hpp"

namespace fsdp::checkpoint {

/// A tensor of the model, or a value that the optimizer keeps for a parameter.
struct Key {
  std::string parameter;
  std::string value;  ///< "" for the model's own
  std::string text() const { return value.empty() ? parameter : parameter + "/" + value; }
  auto operator<=>(const Key&) const = default;
};

/// What the bytes of a piece are.
enum class Encoding {
  raw,        ///< its elements in row-major order
  torch_save  ///< what torch.save writes of the tensor
};

struct Piece {
  Key key;
  at::ScalarType dtype;
  /// Indices `start` to `start + length` of dimension `dim`. A tensor without dimensions is always whole.
  ShardLayout layout;
  std::string file;
  int64_t offset = 0;  ///< in the file
  int64_t bytes = 0;
  uint64_t checksum = 0;  ///< of raw bytes
  Encoding encoding = Encoding::raw;
};

struct Manifest {
  int64_t generation = 0;
  std::map<std::string, int64_t> files;  ///< name and size
  std::map<Key, std::vector<Piece>> tensors;
};

constexpr const char* kManifestName = "manifest";
std::string file_name(int64_t generation, int64_t rank, int64_t ranks);
/// Of a file that this library wrote, complete or not; 0 for others.
int64_t generation_of(const std::string& file_name);

/// What one rank wrote, as lines of the manifest.
std::string lines_of(const std::string& file, int64_t bytes, const std::vector<Piece>& pieces);
/// The manifest of these lines, as a file of it and as what such a file says.
std::string manifest_text(int64_t generation, const std::vector<std::string>& lines);
Manifest manifest_of(int64_t generation, const std::vector<std::string>& lines);
/// Throws RuntimeError with the path: there is none, it is damaged, or of another version; a file it names is
/// missing or has another size.
Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace fsdp::checkpoint
