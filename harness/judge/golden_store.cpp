#include "harness/judge/golden_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "harness/judge/recording.hpp"
#include "harness/protocol/safetensors.hpp"
#include "harness/protocol/sha256.hpp"
#include "harness/protocol/whole_file.hpp"

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

// Who made a recording.
Json maker(const Json& hello) {
  const Json implementation = hello.value("implementation", Json::object());
  const Json environment = hello.value("environment", Json::object());
  Json made_by{{"name", implementation.value("name", "")}, {"version", implementation.value("version", "")}};
  for (const char* key : {"torch_git", "cpu_capability"})
    if (environment.contains(key)) made_by[key] = environment[key];
  return made_by;
}

std::string named(const Json& maker) {
  return maker.value("name", "") + " " + maker.value("version", "");
}

bool uses_composable(const Case& a_case) {
  return std::any_of(a_case.plans.begin(), a_case.plans.end(),
                     [](const Json& plan) { return plan.value("api", "") == "composable"; });
}

}  // namespace

std::string record_command(const Case& a_case) {
  return fmt::format("fsdp-cts run '{}' --testee pytorch{} --record golden/store", a_case.scenario,
                     needs(a_case, "gpu") ? " --device sim" : "");
}

fs::path GoldenStore::index_file(const std::string& scenario) const {
  return root_ / "index" / (scenario + ".json");
}
fs::path GoldenStore::blob_file(const Json& blob) const {
  const auto name = blob.at("file").get<std::string>();
  return root_ / "blobs" / name.substr(0, 2) / name;
}

std::string GoldenStore::read_blob(const Json& blob) const {
  const fs::path file = blob_file(blob);
  if (!fs::exists(file)) throw Unusable{"golden_missing", file.string() + " is not there"};
  std::string bytes = read_all(file);
  const auto due = blob.at("bytes").get<std::size_t>();
  if (bytes.size() < due) {
    throw Unusable{"golden_truncated",
                   fmt::format("{} has {} of {} bytes", file.string(), bytes.size(), due)};
  }
  if (sha256(bytes) != file.stem())
    throw Unusable{"golden_altered", file.string() + " has other content than was recorded"};
  return bytes;
}

Json GoldenStore::write_blob(const std::string& bytes, const std::string& extension) {
  Json blob{{"file", sha256(bytes) + extension}, {"bytes", bytes.size()}};
  const fs::path file = blob_file(blob);
  if (!fs::exists(file) || fs::file_size(file) != bytes.size()) write_whole_file_and_folders(file, bytes);
  return blob;
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
    const std::string tensors = read_blob(entry.at("tensors"));
    truth.evidence = from_recording({parse_safetensors(tensors, blob_file(entry.at("tensors")).string()),
                                     Json::parse(read_blob(entry.at("directory")))});
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

void GoldenStore::save(const Case& a_case, const Evidence& evidence, const Json& hello) {
  const Recording recording = to_recording(evidence, a_case);
  std::lock_guard lock(mutex_);
  const Json tensors = write_blob(serialize_safetensors(recording.tensors), ".safetensors");
  const Json directory = write_blob(recording.directory.dump(), ".json");
  Json of_scenario;
  try {
    of_scenario = index(a_case.scenario);
  } catch (const Unusable&) {
    // An index that cannot be read is written anew; what it named is recorded again by the same command.
  }
  of_scenario["scenario"] = a_case.scenario;
  Json entry{{"fingerprint", fingerprint(a_case)},
             {"world", a_case.world},
             {"reduction_order", hello.value("reduction_order", "unspecified")},
             {"made_by", maker(hello)},
             {"tensors", tensors},
             {"directory", directory}};
  // What the id promises and the recording has not: offload, moves between devices, the removed front door.
  if (!a_case.cpu_form.empty()) entry["cpu_form"] = a_case.cpu_form;
  const Json environment = hello.value("environment", Json::object());
  if (uses_composable(a_case) && environment.contains("composable"))
    entry["composable"] = environment["composable"];
  of_scenario["cases"][a_case.id] = std::move(entry);
  write_whole_file_and_folders(index_file(a_case.scenario), of_scenario.dump(1) + "\n");
  indexes_[a_case.scenario] = std::move(of_scenario);
}

std::vector<Json> GoldenStore::entries() const {
  std::vector<Json> found;
  if (!fs::exists(root_ / "index")) return found;
  for (const auto& file : fs::recursive_directory_iterator(root_ / "index")) {
    if (file.path().extension() != ".json") continue;
    const Json of_scenario = Json::parse(read_all(file.path()));
    for (const auto& [id, entry] : of_scenario.at("cases").items()) found.push_back(entry);
  }
  return found;
}

int GoldenStore::prune() {
  std::lock_guard lock(mutex_);
  std::set<fs::path> named;
  for (const Json& entry : entries()) {
    named.insert(blob_file(entry.at("tensors")));
    named.insert(blob_file(entry.at("directory")));
  }
  if (named.empty()) return 0;
  int removed = 0;
  for (const auto& file : fs::recursive_directory_iterator(root_ / "blobs")) {
    if (file.is_regular_file() && !named.count(file.path())) removed += fs::remove(file.path());
  }
  return removed;
}

Json GoldenStore::made_by(const Case& a_case) {
  try {
    std::lock_guard lock(mutex_);
    const Json& of_scenario = index(a_case.scenario);
    if (of_scenario.is_null() || !of_scenario.at("cases").contains(a_case.id)) return Json::object();
    const Json& entry = of_scenario["cases"][a_case.id];
    return entry.contains("made_by") ? entry["made_by"] : manifest().value("implementation", Json::object());
  } catch (const Unusable&) {
    return Json::object();  // load says what is wrong
  } catch (const Json::exception&) {
    return Json::object();
  }
}

std::string GoldenStore::version_of(const Case& a_case) {
  return made_by(a_case).value("version", "");
}

std::set<std::string> GoldenStore::makers_of(const std::vector<Case>& cases) {
  std::set<std::string> found;
  for (const Case& each : cases)
    if (const Json maker = made_by(each); !maker.empty()) found.insert(named(maker));
  return found;
}

Json GoldenStore::manifest() const {
  const fs::path file = root_ / "MANIFEST.json";
  return fs::exists(file) ? Json::parse(read_all(file)) : Json::object();
}

std::set<std::string> GoldenStore::makers() const {
  std::set<std::string> found;
  const Json of_manifest = manifest().value("implementation", Json::object());
  for (const Json& entry : entries()) {
    found.insert(named(entry.value("made_by", of_manifest)));
  }
  return found;
}

std::optional<std::string> GoldenStore::objection(const Json& hello) const {
  const Json implementation = hello.value("implementation", Json::object());
  const std::string name = implementation.value("name", "");
  const std::string maker = named(implementation);
  if (name != "pytorch")
    return fmt::format(
        "only PyTorch is recorded, and this testee is {}: what is judged must not become the truth",
        name.empty() ? "nameless" : name);
  std::set<std::string> others = makers();
  others.erase(maker);
  if (others.empty()) return std::nullopt;
  return fmt::format(
      "{} holds recordings of {}, and this testee is {}; name another store, or record everything "
      "anew with `golden/record`",
      root_.string(), fmt::join(others, " and "), maker);
}

void GoldenStore::write_manifest(Json manifest, const std::string& command) {
  Json commands = this->manifest().value("commands", Json::array());
  commands.push_back(command);
  manifest["commands"] = std::move(commands);
  std::set<int> worlds;
  const std::vector<Json> recorded = entries();
  for (const Json& entry : recorded) worlds.insert(entry.at("world").get<int>());
  manifest["worlds"] = worlds;
  manifest["cases"] = recorded.size();
  write_whole_file_and_folders(root_ / "MANIFEST.json", manifest.dump(2) + "\n");
}

}  // namespace fsdp_cts
