// What the bodies of recording modules saw: LANGUAGE.md §3, ops `record` and `record_parameters`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fsdp_cts::sdk {

// One per rank and case. A later record under the same key replaces the earlier one.
struct Recorder {
  using Parameters = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;
  std::map<std::string, std::string> dtypes;     // key -> dtype name
  std::map<std::string, Parameters> parameters;  // key -> (name, shape), in order
};

}  // namespace fsdp_cts::sdk
