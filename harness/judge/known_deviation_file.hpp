// The file that known deviations stand in, see docs/known-deviations.md.
#pragma once

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/judge/verdict.hpp"

namespace fsdp_cts {

// "file:line: what was found; what is allowed".
class DeviationFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct KnownDeviation {
  std::string id;
  VerdictKind verdict = VerdictKind::fail;
  std::map<std::string, std::string> locus, when;
  std::string reason, url, expires;
  int line = 0;
};

// Both throw DeviationFileError.
std::vector<KnownDeviation> read_deviations(const std::filesystem::path& file);
std::vector<KnownDeviation> parse_deviations(const std::string& yaml, const std::string& name_for_errors);
void write_deviations(const std::filesystem::path& file, const std::vector<KnownDeviation>& deviations);

}  // namespace fsdp_cts
