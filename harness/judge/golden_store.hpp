// The committed recordings of PyTorch: index/<scenario>.json per scenario, each entry saying who made it and
// in which form; blobs/<2 hex>/<sha256>.safetensors (values) and .json (facts) by content, so that cases
// which agree share them; MANIFEST.json about the last recording.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/judge/truths.hpp"

namespace fsdp_cts {

class GoldenStore {
 public:
  explicit GoldenStore(std::filesystem::path root) : root_(std::move(root)) {}

  // What was recorded for the case. Its problem, where there is one, names the command that records it again:
  //   golden_missing        no index, no entry in it, or no blob
  //   golden_truncated      the blob is shorter than the index says
  //   golden_altered        other content than was recorded, or an index that cannot be read
  //   golden_other_version  recorded from another version of the case (its fingerprint differs)
  OwnedTruth load(const Case& a_case);
  // Of what recorded the case: "2.11.0+cu130"; "" where there is no recording.
  std::string version_of(const Case& a_case);

  // Why recordings of a testee with this `hello` do not belong into the store: it is no PyTorch, or another
  // version than the one that made what is there. Nothing when they do.
  std::optional<std::string> objection(const Json& hello) const;

  // Adds or replaces the recording of one case, with who made it. Files are written beside and renamed; equal
  // content is stored once. Throws std::system_error or std::filesystem::filesystem_error.
  void save(const Case& a_case, const Evidence& evidence, const Json& hello);
  // Removes blobs that no index names any more; returns how many.
  int prune();
  // Given {implementation, environment, backend, device, harness} of this recording; adds the worlds and the
  // number of cases of the whole store, however few were recorded now, and `command` to those that filled it.
  void write_manifest(Json manifest, const std::string& command);
  Json manifest() const;  // an empty object where there is none
  // Who made the recordings of these cases: "pytorch 2.11.0+cu130"; several where the store is mixed, none for
  // cases without a recording.
  std::set<std::string> makers_of(const std::vector<Case>& cases);

  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path index_file(const std::string& scenario) const;
  // A blob is named by {file: "<sha256>.<extension>", bytes}.
  std::filesystem::path blob_file(const Json& blob) const;
  std::string read_blob(const Json& blob) const;
  Json write_blob(const std::string& bytes, const std::string& extension);
  std::vector<Json> entries() const;     // of all scenarios
  std::set<std::string> makers() const;  // of all of them
  // {name, version}; an empty object where there is no recording that can be read.
  Json made_by(const Case& a_case);
  const Json& index(const std::string& scenario);

  std::filesystem::path root_;
  std::mutex mutex_;
  std::map<std::string, Json> indexes_;
};

// The command that records a case's scenario again.
std::string record_command(const Case& a_case);

}  // namespace fsdp_cts
