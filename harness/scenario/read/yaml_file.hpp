// YAML files as DataTree.
#pragma once

#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts {

// Plain scalars as YAML 1.2's core schema types them (null ~ true false integers floats), or all as the text that
// they are; quoted ones are strings, empty ones null.
enum class Scalars { typed, text };

// Duplicate keys, keys that are no scalars, aliases of nothing and a second document are mistakes; the rest of the
// file is still returned. After a syntax error, or of a tree that is too deep or large, nothing is. `name` is what
// messages call the file. A file that was read before and has the same text is not parsed again.
DataTree read_yaml(const std::filesystem::path& file, const std::string& name, Mistakes& mistakes);
DataTree parse_yaml(const std::string& text, const std::string& name, Mistakes& mistakes,
                    Scalars scalars = Scalars::typed);

}  // namespace fsdp_cts
