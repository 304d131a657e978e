#include "harness/runner/checkpoints.hpp"

#include <algorithm>
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
  if (damage.how == "removed") {
    fs::remove(file);
  } else {
    fs::resize_file(file, file_size(file) / 2);
  }
}

}  // namespace fsdp_cts
