#include "harness/cli/must_run.hpp"

#include <fmt/format.h>

#include <fstream>
#include <regex>

#include "harness/case/filter.hpp"
#include "harness/cli/suite.hpp"

namespace fsdp_cts::cli {

MustRun::MustRun(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw UsageError("cannot read the must-run list " + file.string());
  static const std::regex line_form(R"(\s*(\S+)(?:\s*>=\s*(\d+))?\s*)");
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    // '#' is part of the ids of twins, so a comment begins at the start of a line or after a space.
    static const std::regex comment(R"((^|\s)#.*$)");
    line = std::regex_replace(line, comment, "");
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::smatch match;
    if (!std::regex_match(line, match, line_form))
      throw UsageError(fmt::format("{}:{}: '{}' is no must-run entry; expected PATTERN or PATTERN >= N",
                                   file.string(), number, line));
    entries_.push_back({match[1], match[2].matched ? std::stoi(match[2]) : 1});
  }
  if (entries_.empty()) throw UsageError("the must-run list " + file.string() + " names no case");
}

std::vector<std::string> MustRun::missing(const std::vector<Json>& records) const {
  std::vector<std::string> faults;
  for (const Entry& entry : entries_) {
    int judged = 0;
    for (const Json& record : records) {
      const std::string verdict = record.at("verdict").get<std::string>();
      if (verdict != "skipped" && verdict != "unsupported" &&
          matches_glob(record.at("id").get<std::string>(), entry.pattern))
        ++judged;
    }
    if (judged < entry.at_least)
      faults.push_back(fmt::format("{} cases of '{}' were judged, the must-run list demands {}", judged,
                                   entry.pattern, entry.at_least));
  }
  return faults;
}

}  // namespace fsdp_cts::cli
