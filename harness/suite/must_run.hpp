// A level: which cases a run selects, and how many of them must have been judged. What vanished from a run
// cannot have passed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/scenario/case.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts {

class MustRun {
 public:
  // One entry a line: a case id or a glob over ids, with " >= N" behind it where another number of cases than
  // one must have been judged; 0 for cases that only some machines can show. `#` begins a comment. Throws
  // UsageError for a file that cannot be read or holds no entry.
  explicit MustRun(const std::filesystem::path& file);
  // What `run --level` selects.
  std::vector<std::string> patterns() const;
  // One sentence per entry of which too few cases were judged. Skipped and unsupported cases were not.
  std::vector<std::string> missing(const std::vector<Json>& records) const;

 private:
  struct Entry {
    std::string pattern;
    int at_least = 1;
  };
  std::vector<Entry> entries_;
};

// conformance/levels/NAME.txt, or a file of the same form when `name` is a path (it has a slash). Throws
// UsageError naming the levels there are, or the file that cannot be read.
MustRun named_level(const Suite& suite, const std::string& name);

}  // namespace fsdp_cts
