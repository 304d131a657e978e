#include "harness/protocol/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "harness/protocol/safetensors_header.hpp"

namespace fsdp_cts {
namespace {

// Small files, nearly all of them, are read by one call of this size.
constexpr std::size_t first_read = std::size_t{64} * 1024;
// A lying testee must not exhaust the judge's memory with a sparse file.
constexpr std::uint64_t file_limit = std::uint64_t{4} << 30;

struct OpenFile {
  std::uint64_t size() const {
    struct stat facts {};
    if (::fstat(descriptor, &facts) != 0) throw std::system_error(errno, std::generic_category(), name);
    if (!S_ISREG(facts.st_mode))
      throw SafetensorsError("not_regular_file", name + ": not a regular file [not_regular_file]");
    const auto size = static_cast<std::uint64_t>(facts.st_size);
    if (size > file_limit)
      throw SafetensorsError("file_too_large", name + ": " + std::to_string(size) + " bytes; at most " +
                                                   std::to_string(file_limit) + " [file_too_large]");
    return size;
  }

  void read(void* into, std::size_t count, std::uint64_t offset) const {
    auto* at = static_cast<char*>(into);
    while (count > 0) {
      const ssize_t got = ::pread(descriptor, at, count, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw std::system_error(errno, std::generic_category(), name);
      if (got == 0) throw SafetensorsError("file_shrank", name + ": shrank while it was read [file_shrank]");
      at += got;
      offset += static_cast<std::uint64_t>(got);
      count -= static_cast<std::size_t>(got);
    }
  }

  std::string name;
  int descriptor;
};

}  // namespace

TensorMap read_safetensors(const std::filesystem::path& path) {
  // Not blocking: the path may name a pipe that nobody writes.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), path.string());
  const auto close = [](const int* each) { ::close(*each); };
  const std::unique_ptr<const int, decltype(close)> owner(&descriptor, close);
  return read_safetensors(descriptor, path.string());
}

TensorMap read_safetensors(int descriptor, const std::string& name_for_errors) {
  const OpenFile file{name_for_errors, descriptor};
  const std::uint64_t size = file.size();
  std::string start(std::min<std::uint64_t>(size, first_read), '\0');
  file.read(start.data(), start.size(), 0);
  const std::uint64_t data_at =
      safetensors_prefix +
      safetensors_header_length(std::string_view(start).substr(0, safetensors_prefix), size, file.name);
  if (data_at > start.size()) {
    const std::size_t have = start.size();
    start.resize(data_at);
    file.read(start.data() + have, data_at - have, have);
  }
  const std::string_view header =
      std::string_view(start).substr(safetensors_prefix, data_at - safetensors_prefix);

  TensorMap tensors;
  for (TensorClaim& claim : parse_safetensors_header(header, size - data_at, file.name)) {
    HostTensor tensor{claim.dtype, std::move(claim.shape), std::vector<std::byte>(claim.end - claim.begin)};
    if (data_at + claim.end <= start.size()) {
      const auto* begin = reinterpret_cast<const std::byte*>(start.data()) + data_at + claim.begin;
      std::copy_n(begin, tensor.bytes.size(), tensor.bytes.begin());  // nothing at all for an empty tensor
    } else {
      file.read(tensor.bytes.data(), tensor.bytes.size(), data_at + claim.begin);
    }
    tensors.emplace(std::move(claim.name), std::move(tensor));
  }
  return tensors;
}

TensorMap parse_safetensors(std::string_view bytes, const std::string& name_for_errors) {
  const std::uint64_t data_at =
      safetensors_prefix +
      safetensors_header_length(bytes.substr(0, safetensors_prefix), bytes.size(), name_for_errors);
  const std::string_view header = bytes.substr(safetensors_prefix, data_at - safetensors_prefix);
  const std::string_view data = bytes.substr(data_at);
  TensorMap tensors;
  for (TensorClaim& claim : parse_safetensors_header(header, data.size(), name_for_errors)) {
    const auto* begin = reinterpret_cast<const std::byte*>(data.data());
    tensors.emplace(
        std::move(claim.name),
        HostTensor{claim.dtype, std::move(claim.shape), {begin + claim.begin, begin + claim.end}});
  }
  return tensors;
}

}  // namespace fsdp_cts
