// The model files of a suite.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts {

struct ModelFile {
  DataTree parameters;  // name -> default
  DataTree module;
};
using ModelFiles = std::map<std::string, ModelFile>;

// Reads models/*.yaml below `conformance`.
ModelFiles load_model_files(const std::filesystem::path& conformance, Mistakes& mistakes);

}  // namespace fsdp_cts
