// What is left of a case that did not pass: everything a person, or `replay`, needs to look at it again.
//
//   case.json       the message the testee got, what the scenario expects, fingerprint
//   data.safetensors
//   observations/   rank<r>-step<s>.json and .safetensors, as they came
//   rank<r>.output.txt, rank<r>.stacks.txt
//                   what the rank wrote to stdout and stderr, and where it hung
//   verdict.json    the case's record
//   repeat.txt      the command that runs it again
#pragma once

#include <filesystem>
#include <string>

#include "harness/runner/run.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts {

// Written beside and renamed, so that a folder under its name is complete. `options` as kept_options gives
// them. Returns the folder. Throws what the file system throws.
std::filesystem::path write_bundle(const std::filesystem::path& folder, const Case& a_case,
                                   const CaseRun& run, const Json& record, const Json& options);

struct BundleHead {
  std::string case_id, fingerprint;
  Json options;
  int fresh_draw = 0;  // which draw of --fresh-data's seed the case had
};
// Throws UsageError for a folder that is no bundle.
BundleHead read_bundle(const std::filesystem::path& folder);

}  // namespace fsdp_cts
