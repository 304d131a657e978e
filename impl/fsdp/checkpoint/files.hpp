#pragma once
// The files of a checkpoint: written so that a name never stands for half a file.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::checkpoint {

/// Bytes that go to `<path>.tmp`. `commit` waits until they are on the disk and gives them their name;
/// without it they are removed. Throws RuntimeError with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(const void* data, size_t size);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

uint64_t checksum(const void* data, size_t size);

/// The code of safetensors ("F32"), "" for a dtype that this library writes none for; and back.
std::string safetensors_dtype(at::ScalarType dtype);
std::optional<at::ScalarType> dtype_of(const std::string& code);

/// Tensors in host memory, contiguous, with their names and a note about each for people.
struct NamedTensor {
  std::string name;
  std::string note;
  at::Tensor tensor;
};
struct WrittenFile {
  int64_t bytes = 0;
  std::vector<int64_t> offsets;  ///< of each tensor's first byte in the file
};
WrittenFile write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// `size` bytes from `offset` on, into memory that the caller has. Throws RuntimeError with the path.
void read_bytes(const std::filesystem::path& path, int64_t offset, void* data, size_t size);
std::string read_text(const std::filesystem::path& path);

}  // namespace fsdp::checkpoint
