// Where the checkpoints of a run lie: a folder for each case that saves one.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp_cts {

std::filesystem::path checkpoint_folder(const std::filesystem::path& checkpoints, const std::string& case_id);

// Whether there is one to load. A case that failed before it saved has left its folder empty.
bool holds_checkpoint(const std::filesystem::path& checkpoints, const std::string& case_id);

}  // namespace fsdp_cts
