// The data files of a session (PROTOCOL.md §4). Cases whose data come out the same share one file, whatever
// else differs in them.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

class DataFiles {
 public:
  // `folder` exists.
  explicit DataFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The file for this case, written on first use. Throws what make_data and write_safetensors throw.
  std::filesystem::path file_for(const Case& a_case);

  std::size_t count() const { return files_.size(); }

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::filesystem::path> files_;  // by everything the data depend on
};

}  // namespace fsdp_cts
