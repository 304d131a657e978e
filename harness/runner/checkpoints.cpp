#include "harness/runner/checkpoints.hpp"

#include <algorithm>
#include <fstream>
#include <vector>

#include "harness/protocol/sha256.hpp"

namespace fsdp_cts {

std::filesystem::path checkpoint_folder(const std::filesystem::path& checkpoints,
                                        const std::string& case_id) {
  return checkpoints / sha256(case_id).substr(0, 16);
}

bool holds_checkpoint(const std::filesystem::path& checkpoints, const std::string& case_id) {
  const std::filesystem::path folder = checkpoint_folder(checkpoints, case_id);
  return !checkpoints.empty() && exists(folder) && !is_empty(folder);
}

namespace {

void alter_last_byte(const std::filesystem::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int last = file.get();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
}

}  // namespace

void copy_damaged(const std::filesystem::path& checkpoint, const Damage& damage,
                  const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy(checkpoint, folder, fs::copy_options::recursive);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  if (files.empty()) return;
  std::sort(files.begin(), files.end());
  const auto size = [](const fs::path& a, const fs::path& b) { return file_size(a) < file_size(b); };
  const fs::path& file = damage.file == "first"  ? files.front()
                         : damage.file == "last" ? files.back()
                                                 : *std::max_element(files.begin(), files.end(), size);
  if (damage.how == "removed") fs::remove(file);
  if (damage.how == "truncated") fs::resize_file(file, file_size(file) / 2);
  if (damage.how == "extended") std::ofstream(file, std::ios::app | std::ios::binary) << "trailing";
  if (damage.how == "altered") alter_last_byte(file);
}

}  // namespace fsdp_cts
