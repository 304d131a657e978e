#include "harness/runner/checkpoints.hpp"

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

}  // namespace fsdp_cts
