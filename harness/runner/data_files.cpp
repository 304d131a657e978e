#include "harness/runner/data_files.hpp"

#include "harness/protocol/safetensors.hpp"
#include "harness/scenario/data/make_data.hpp"

namespace fsdp_cts {

std::filesystem::path DataFiles::file_for(const Case& a_case) {
  std::string content = std::to_string(a_case.world) + a_case.data.dump() + a_case.models.dump();
  const auto [entry, fresh] = files_.try_emplace(std::move(content));
  if (fresh) {
    const std::filesystem::path file = folder_ / (std::to_string(files_.size()) + ".safetensors");
    try {
      write_safetensors(file, make_data(a_case));
    } catch (...) {
      files_.erase(entry);
      throw;
    }
    entry->second = file;
  }
  return entry->second;
}

}  // namespace fsdp_cts
