#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "harness/protocol/safetensors.hpp"
#include "harness/protocol/safetensors_header.hpp"
#include "harness/protocol/whole_file.hpp"

namespace fsdp_cts {

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
  write_whole_file(file, serialize_safetensors(tensors));
}

}  // namespace fsdp_cts
