// YAML files as DataTree.
#pragma once

#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts {

// Plain scalars are typed as in YAML 1.2's core schema (null ~ true false integers floats), quoted ones are
// strings. Syntax errors, duplicate keys, keys that are no scalars and trees that are too deep or large are
// mistakes; the rest of the file is still returned. `name` is what messages call the file. A file that was read
// before and has the same text is not parsed again.
DataTree read_yaml(const std::filesystem::path& file, const std::string& name, Mistakes& mistakes);
DataTree parse_yaml(const std::string& text, const std::string& name, Mistakes& mistakes);

}  // namespace fsdp_cts
