#include "harness/suite/must_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "harness/scenario/glob.hpp"

namespace fsdp_cts {

MustRun::MustRun(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw UsageError("cannot read the must-run list " + file.string());
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    // '#' is part of the ids of twins, so a comment begins at the start of a line or after a space.
    std::vector<std::string> words;
    std::istringstream stream_of_line(line);
    for (std::string word; stream_of_line >> word && !word.starts_with('#');) words.push_back(word);
    if (words.empty()) continue;
    const bool counted = words.size() == 3 && words[1] == ">=" && words[2].size() < 10 &&
                         words[2].find_first_not_of("0123456789") == std::string::npos;
    if (words.size() != 1 && !counted)
      throw UsageError(fmt::format("{}:{}: '{}' is no must-run entry; expected PATTERN or PATTERN >= N",
                                   file.string(), number, line));
    entries_.push_back({words[0], counted ? std::stoi(words[2]) : 1});
  }
  if (entries_.empty()) throw UsageError("the must-run list " + file.string() + " names no case");
}

std::vector<std::string> MustRun::patterns() const {
  std::vector<std::string> result;
  for (const Entry& entry : entries_) result.push_back(entry.pattern);
  return result;
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

MustRun named_level(const Suite& suite, const std::string& name) {
  if (name.find('/') != std::string::npos) return MustRun(name);
  const std::filesystem::path folder = suite.conformance() / "levels";
  std::vector<std::string> known;
  std::error_code absent;
  for (const auto& file : std::filesystem::directory_iterator(folder, absent))
    known.push_back(file.path().stem().string());
  std::sort(known.begin(), known.end());
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw UsageError(
        fmt::format("there is no level '{}'; levels are {} (a file of your own needs a slash in its path)",
                    name, fmt::join(known, ", ")));
  return MustRun(folder / (name + ".txt"));
}

}  // namespace fsdp_cts
