// Everything wrong in a set of data files, each with its address, reported at once.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/read/data_tree.hpp"

namespace fsdp_cts {

// A mistake in a data file: "file:line: what was found; what is allowed".
class ScenarioError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Mistakes {
 public:
  // The same mistake found in several cases of a scenario is kept once. `what` says what was found and what
  // is allowed.
  void add(const SourcePlace& place, const std::string& what);
  void add_all(const Mistakes& others);
  bool empty() const { return lines_.empty(); }
  std::size_t noted() const { return noted_; }  // grows with every add(), repeated ones included
  void throw_if_any() const;  // ScenarioError: one "file:line: what" per line, in order of file and line

 private:
  struct Line {
    std::string file;
    int line;
    std::string what;
    bool operator==(const Line&) const = default;
  };
  std::vector<Line> lines_;
  std::size_t noted_ = 0;
};

// "unknown <kind> 'found', did you mean 'x'? Allowed are a, b, c"
std::string unknown_name(std::string_view kind, std::string_view found,
                         const std::vector<std::string>& allowed);

}  // namespace fsdp_cts
