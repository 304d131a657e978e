// Where the checkpoints of a run lie: a folder for each case that saves one.
#pragma once

#include <filesystem>
#include <string>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

std::filesystem::path checkpoint_folder(const std::filesystem::path& checkpoints, const std::string& case_id);

// Whether there is one to load. A case that failed before it saved has left its folder empty.
bool holds_checkpoint(const std::filesystem::path& checkpoints, const std::string& case_id);

// `folder` becomes a copy of the checkpoint with the damage done to it; what was there is gone.
void copy_damaged(const std::filesystem::path& checkpoint, const Damage& damage,
                  const std::filesystem::path& folder);

}  // namespace fsdp_cts
