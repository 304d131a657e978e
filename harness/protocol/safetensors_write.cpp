#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "harness/protocol/safetensors.hpp"
#include "harness/protocol/safetensors_header.hpp"

namespace fsdp_cts {
namespace {

// A name that no other writer of this folder uses; removed again unless the file takes its final name.
struct UnfinishedFile {
  explicit UnfinishedFile(const std::filesystem::path& final_path) {
    static std::atomic<unsigned> count{0};
    path = final_path;
    path += "." + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".part";
    descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) throw std::system_error(errno, std::generic_category(), path.string());
  }
  ~UnfinishedFile() {
    if (descriptor >= 0) ::close(descriptor);
    if (!finished) ::unlink(path.c_str());
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) throw std::system_error(errno, std::generic_category(), path.string());
      bytes.remove_prefix(static_cast<std::size_t>(done));
    }
  }

  void finish(const std::filesystem::path& final_path) {
    const int result = ::close(descriptor);
    descriptor = -1;
    if (result != 0) throw std::system_error(errno, std::generic_category(), path.string());
    std::filesystem::rename(path, final_path);
    finished = true;
  }

  std::filesystem::path path;
  int descriptor = -1;
  bool finished = false;
};

}  // namespace

std::string serialize_safetensors(const TensorMap& tensors) {
  // Widest elements first keeps every tensor aligned to its own element size, which some readers need to map
  // it.
  std::vector<TensorMap::const_pointer> in_file_order;
  for (const auto& entry : tensors) {
    const HostTensor& tensor = entry.second;
    if (tensor.bytes.size() != static_cast<std::size_t>(tensor.numel()) * dtype_size(tensor.dtype))
      throw std::invalid_argument("serialize_safetensors: tensor '" + entry.first + "' has " +
                                  std::to_string(tensor.bytes.size()) +
                                  " bytes, which is not what its shape needs");
    in_file_order.push_back(&entry);
  }
  std::stable_sort(in_file_order.begin(), in_file_order.end(), [](auto* a, auto* b) {
    return dtype_size(a->second.dtype) > dtype_size(b->second.dtype);
  });

  nlohmann::json header = nlohmann::json::object();  // its keys are sorted
  std::uint64_t offset = 0;
  for (const auto* entry : in_file_order) {
    const HostTensor& tensor = entry->second;
    const std::uint64_t end = offset + tensor.bytes.size();
    header[entry->first] = {{"dtype", safetensors_dtype_name(tensor.dtype)},
                            {"shape", tensor.shape},
                            {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  const std::uint64_t length = text.size();
  std::string bytes(safetensors_prefix, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  bytes.reserve(safetensors_prefix + length + offset);
  bytes += text;
  for (const auto* entry : in_file_order)
    bytes.append(reinterpret_cast<const char*>(entry->second.bytes.data()), entry->second.bytes.size());
  return bytes;
}

void write_safetensors(const std::filesystem::path& file, const TensorMap& tensors) {
  const std::string bytes = serialize_safetensors(tensors);
  UnfinishedFile unfinished(file);
  unfinished.write(bytes);
  unfinished.finish(file);
}

}  // namespace fsdp_cts
