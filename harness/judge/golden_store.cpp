#include "harness/judge/golden_store.hpp"

#include <fmt/format.h>

#include <fstream>
#include <set>
#include <sstream>

#include "harness/judge/recording.hpp"
#include "harness/protocol/safetensors.hpp"
#include "harness/protocol/sha256.hpp"

namespace fsdp_cts {
namespace {

namespace fs = std::filesystem;

struct Unusable {
  std::string code, text;
};

std::string read_all(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  if (!stream) throw Unusable{"golden_missing", file.string() + " cannot be read"};
  return std::move(bytes).str();
}

void write_renamed(const fs::path& file, const std::string& bytes) {
  fs::create_directories(file.parent_path());
  const fs::path beside = file.string() + ".partial";
  std::ofstream stream(beside, std::ios::binary | std::ios::trunc);
  stream << bytes;
  stream.close();
  if (!stream) throw std::system_error(errno, std::generic_category(), beside.string());
  fs::rename(beside, file);
}

}  // namespace

std::string record_command(const Case& a_case) {
  return fmt::format("fsdp-cts run '{}' --testee pytorch --record golden/store", a_case.scenario);
}

fs::path GoldenStore::index_file(const std::string& scenario) const {
  return root_ / "index" / (scenario + ".json");
}
fs::path GoldenStore::blob_file(const std::string& sha) const {
  return root_ / "blobs" / sha.substr(0, 2) / (sha + ".safetensors");
}

const Json& GoldenStore::index(const std::string& scenario) {
  auto [entry, fresh] = indexes_.try_emplace(scenario);
  if (!fresh) return entry->second;
  const fs::path file = index_file(scenario);
  if (!fs::exists(file)) return entry->second;
  try {
    entry->second = Json::parse(read_all(file));
  } catch (const Json::exception& error) {
    indexes_.erase(scenario);
    throw Unusable{"golden_altered", fmt::format("{} cannot be read: {}", file.string(), error.what())};
  }
  return entry->second;
}

OwnedTruth GoldenStore::load(const Case& a_case) {
  OwnedTruth truth;
  try {
    Json entry;
    {
      std::lock_guard lock(mutex_);
      const Json& of_scenario = index(a_case.scenario);
      if (of_scenario.is_null())
        throw Unusable{"golden_missing", "nothing is recorded for " + a_case.scenario};
      const Json& cases = of_scenario.at("cases");
      if (!cases.contains(a_case.id))
        throw Unusable{"golden_missing", "nothing is recorded for this case of " + a_case.scenario};
      entry = cases[a_case.id];
    }
    if (entry.at("fingerprint") != fingerprint(a_case)) {
      throw Unusable{"golden_other_version",
                     "the recording is of another version of this case: models, plan, program or data have "
                     "changed since"};
    }
    const std::string sha = entry.at("blob").get<std::string>();
    const fs::path file = blob_file(sha);
    if (!fs::exists(file)) throw Unusable{"golden_missing", file.string() + " is not there"};
    const std::string bytes = read_all(file);
    const auto due = entry.at("bytes").get<std::size_t>();
    if (bytes.size() < due)
      throw Unusable{"golden_truncated",
                     fmt::format("{} has {} of {} bytes", file.string(), bytes.size(), due)};
    if (sha256(bytes) != sha)
      throw Unusable{"golden_altered", file.string() + " has other content than was recorded"};
    truth.evidence = from_recording({parse_safetensors(bytes, file.string()), entry.at("directory")});
    truth.reduction_order = entry.value("reduction_order", "unspecified");
  } catch (const Unusable& problem) {
    truth.problem = Finding{VerdictKind::setup_error, problem.code,
                            fmt::format("{}; to record again: {}", problem.text, record_command(a_case))};
  } catch (const std::exception& error) {
    truth.problem = Finding{VerdictKind::setup_error, "golden_altered",
                            fmt::format("the recording cannot be read ({}); to record again: {}",
                                        error.what(), record_command(a_case))};
  }
  return truth;
}

void GoldenStore::save(const Case& a_case, const Evidence& evidence, const std::string& reduction_order) {
  const Recording recording = to_recording(evidence, a_case.world);
  const std::string bytes = serialize_safetensors(recording.tensors);
  const std::string sha = sha256(bytes);
  std::lock_guard lock(mutex_);
  if (!fs::exists(blob_file(sha)) || fs::file_size(blob_file(sha)) != bytes.size())
    write_renamed(blob_file(sha), bytes);
  Json of_scenario;
  try {
    of_scenario = index(a_case.scenario);
  } catch (const Unusable&) {
    // An index that cannot be read is written anew; what it named is recorded again by the same command.
  }
  of_scenario["scenario"] = a_case.scenario;
  of_scenario["cases"][a_case.id] = {{"fingerprint", fingerprint(a_case)},
                                     {"blob", sha},
                                     {"bytes", bytes.size()},
                                     {"reduction_order", reduction_order},
                                     {"directory", recording.directory}};
  write_renamed(index_file(a_case.scenario), of_scenario.dump(1) + "\n");
  indexes_[a_case.scenario] = std::move(of_scenario);
}

int GoldenStore::prune() {
  std::lock_guard lock(mutex_);
  std::set<std::string> named;
  if (!fs::exists(root_ / "index") || !fs::exists(root_ / "blobs")) return 0;
  for (const auto& file : fs::recursive_directory_iterator(root_ / "index")) {
    if (file.path().extension() != ".json") continue;
    const Json of_scenario = Json::parse(read_all(file.path()));
    for (const auto& [id, entry] : of_scenario.at("cases").items())
      named.insert(entry.at("blob").get<std::string>());
  }
  int removed = 0;
  for (const auto& file : fs::recursive_directory_iterator(root_ / "blobs")) {
    if (file.is_regular_file() && !named.count(file.path().stem().string()))
      removed += fs::remove(file.path());
  }
  return removed;
}

void GoldenStore::write_manifest(const Json& manifest) {
  write_renamed(root_ / "MANIFEST.json", manifest.dump(2) + "\n");
}

}  // namespace fsdp_cts
