// Files that are there as a whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace fsdp_cts {

// Writes beside `file` and renames: a reader, or an end in the middle, sees what was there before or all of `bytes`.
// Makes no folders: a testee must not bring back one that its runner has removed. Throws std::system_error that names
// the file; nothing is left beside it then.
void write_whole_file(const std::filesystem::path& file, std::string_view bytes);

// The same, and makes the folders above it.
void write_whole_file_and_folders(const std::filesystem::path& file, std::string_view bytes);

}  // namespace fsdp_cts
