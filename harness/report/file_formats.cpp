#include "harness/report/file_formats.hpp"

#include <algorithm>

#include "harness/report/html.hpp"
#include "harness/report/junit.hpp"

namespace fsdp_cts {

const std::vector<FileFormat>& file_formats() {
  static const std::vector<FileFormat> formats = {
      {"--junit", "Write JUnit XML",
       [](const Report& report, const Explanations&, const std::filesystem::path& file) {
         write_junit(report, file);
       }},
      {"--html", "Write a single-file HTML report", write_html},
  };
  return formats;
}

bool any_format(const FormatFiles& files) {
  return std::any_of(files.begin(), files.end(), [](const auto& entry) { return !entry.second.empty(); });
}

void write_formats(const FormatFiles& files, const Report& report, const Explanations& explanations) {
  for (const FileFormat& format : file_formats())
    if (const auto file = files.find(format.option); file != files.end() && !file->second.empty())
      format.write(report, explanations, file->second);
}

}  // namespace fsdp_cts
