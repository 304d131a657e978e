// A list of cases that must have been judged: what vanished from a run cannot have passed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/case/case.hpp"

namespace fsdp_cts::cli {

class MustRun {
 public:
  // One entry a line: a case id or a glob over ids, with " >= N" behind it where more than one case must
  // match. `#` begins a comment. Throws UsageError for a file that cannot be read or holds no entry.
  explicit MustRun(const std::filesystem::path& file);
  // One sentence per entry of which too few cases were judged. Skipped and unsupported cases were not.
  std::vector<std::string> missing(const std::vector<Json>& records) const;

 private:
  struct Entry {
    std::string pattern;
    int at_least = 1;
  };
  std::vector<Entry> entries_;
};

}  // namespace fsdp_cts::cli
