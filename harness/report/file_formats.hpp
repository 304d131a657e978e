// The formats a report can be written in beside NDJSON, as `run` and `report` offer them: a format is a
// header, a source file and a line in the table.
#pragma once

#include "harness/report/report.hpp"

namespace fsdp_cts {

// Case id → what the case does, in words. A format may leave it out.
using Explanations = std::map<std::string, std::string>;

struct FileFormat {
  const char* option;  // "--junit"
  const char* about;   // of the option, for --help
  // Throws std::runtime_error when the file cannot be written.
  void (*write)(const Report& report, const Explanations& explanations, const std::filesystem::path& file);
};

const std::vector<FileFormat>& file_formats();

// Files that were asked for, by the option of their format; "": not this one.
using FormatFiles = std::map<std::string, std::string>;

bool any_format(const FormatFiles& files);
void write_formats(const FormatFiles& files, const Report& report, const Explanations& explanations);

}  // namespace fsdp_cts
