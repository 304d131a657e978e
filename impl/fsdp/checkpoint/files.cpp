#include "checkpoint/files.hpp"

#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "fsdp/errors.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::pair<const char*, at::ScalarType> kDtypes[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
    {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
    {"U8", at::kByte},    {"BOOL", at::kBool}};

/// A new name is safe only when its folder is on the disk, too.
void flush_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return;  // some file systems do not open folders; the file itself is safe
  ::fsync(descriptor);
  ::close(descriptor);
}

std::string json_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      result += escaped;
    } else {
      result += c;
    }
  }
  return result + "\"";
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), temporary_(path_) {
  temporary_ += ".tmp";
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot be made");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) const {
  throw RuntimeError(temporary_.string() + " " + what + ": " + std::strerror(errno));
}

void AtomicFile::write(const void* data, size_t size) {
  const auto* next = static_cast<const char*>(data);
  while (size > 0) {
    const auto written = ::write(descriptor_, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    next += written;
    size -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot be written");
  ::close(descriptor_);
  descriptor_ = -1;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed");
  flush_folder(path_.parent_path());
}

// Eight bytes at a time. Each step is a bijection of the sum so far, so that no change of a single word is
// missed; the rotation brings high bits down to where the multiplication spreads them.
uint64_t checksum(const void* data, size_t size) {
  constexpr uint64_t prime = 0x9E3779B97F4A7C15;
  const auto* bytes = static_cast<const char*>(data);
  uint64_t sum = prime ^ size;
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof word, size - i));
    sum = std::rotl(sum ^ word, 29) * prime;
  }
  return sum ^ (sum >> 32);
}

std::string safetensors_dtype(at::ScalarType dtype) {
  for (const auto& [code, coded] : kDtypes) {
    if (coded == dtype) return code;
  }
  return "";
}

std::optional<at::ScalarType> dtype_of(const std::string& code) {
  for (const auto& [known, dtype] : kDtypes) {
    if (code == known) return dtype;
  }
  return std::nullopt;
}

WrittenFile write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::string notes, entries;
  int64_t end = 0;
  WrittenFile result;
  for (const auto& [name, note, tensor] : tensors) {
    std::string shape;
    for (const auto size : tensor.sizes()) {
      if (!shape.empty()) shape += ',';
      shape += std::to_string(size);
    }
    const auto begin = end;
    end += static_cast<int64_t>(tensor.nbytes());
    result.offsets.push_back(begin);
    notes += c10::str(",", json_string(name), ":", json_string(note));
    entries += c10::str(",", json_string(name), ":{\"dtype\":\"", safetensors_dtype(tensor.scalar_type()),
                        "\",\"shape\":[", shape, "],\"data_offsets\":[", begin, ",", end, "]}");
  }
  auto header = c10::str("{\"__metadata__\":{\"format\":\"fsdp checkpoint\"", notes, "}", entries, "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");
  const auto data = static_cast<int64_t>(sizeof length + length);
  for (auto& offset : result.offsets) offset += data;
  result.bytes = data + end;

  AtomicFile file(path);
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  for (const auto& [name, note, tensor] : tensors) file.write(tensor.const_data_ptr(), tensor.nbytes());
  file.commit();
  return result;
}

void read_bytes(const std::filesystem::path& path, int64_t offset, void* data, size_t size) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RuntimeError(path.string() + " cannot be opened: " + std::strerror(errno));
  file.seekg(offset);
  file.read(static_cast<char*>(data), static_cast<std::streamsize>(size));
  if (!file) throw RuntimeError(path.string() + " cannot be read: it is shorter than the manifest says.");
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RuntimeError(path.string() + " cannot be opened: " + std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace fsdp::checkpoint
