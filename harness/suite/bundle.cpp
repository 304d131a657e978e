#include "harness/suite/bundle.hpp"

#include <fmt/format.h>

#include <fstream>

#include "harness/protocol/safetensors.hpp"
#include "harness/protocol/whole_file.hpp"
#include "harness/scenario/data/make_data.hpp"

namespace fsdp_cts {
namespace {

namespace fs = std::filesystem;

// Ids hold characters that file systems or shells treat specially.
std::string folder_name(const std::string& id) {
  std::string name = id;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '=' && c != '_') c = '_';
  }
  // Long ids keep their end, which holds the axes.
  return name.size() > 200 ? name.substr(name.size() - 200) : name;
}

std::string pretty(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

fs::path write_bundle(const fs::path& folder, const Case& a_case, const CaseRun& run, const Json& record,
                      const Json& options) {
  fs::path target = folder / folder_name(a_case.id);
  const fs::path beside = target.string() + ".partial";
  fs::remove_all(beside);
  fs::create_directories(beside / "observations");
  const Json head{{"case", a_case.id},
                  {"fingerprint", fingerprint(a_case)},
                  {"options", options},
                  {"fresh_data", record.value("fresh_data", Json(nullptr))},
                  {"message", case_message(a_case)},
                  {"expect", a_case.expect}};
  write_whole_file(beside / "case.json", pretty(head));
  write_safetensors(beside / "data.safetensors", make_data(a_case));
  for (const Observation& observation : run.observations) {
    const fs::path stem =
        beside / "observations" / fmt::format("rank{}-step{}", observation.rank, observation.step);
    write_whole_file(stem.string() + ".json", pretty(observation.entries));
    if (!observation.tensors.empty()) write_safetensors(stem.string() + ".safetensors", observation.tensors);
  }
  for (const RankReport& rank : run.ranks) {
    const std::string stem = (beside / fmt::format("rank{}", rank.rank)).string();
    if (!rank.captured_output.empty()) write_whole_file(stem + ".output.txt", rank.captured_output + "\n");
    if (!rank.stacks.empty()) write_whole_file(stem + ".stacks.txt", rank.stacks);
  }
  write_whole_file(beside / "verdict.json", pretty(record));
  write_whole_file(beside / "repeat.txt", record.at("repeat").get<std::string>() + "\n");
  fs::remove_all(target);
  fs::rename(beside, target);
  return target;
}

BundleHead read_bundle(const fs::path& folder) {
  std::ifstream stream(folder / "case.json");
  const Json head = Json::parse(stream, nullptr, false);
  try {
    const Json fresh = head.value("fresh_data", Json(nullptr));
    return {head.at("case").get<std::string>(), head.at("fingerprint").get<std::string>(), head.at("options"),
            fresh.is_null() ? 0 : fresh.at("draw").get<int>()};
  } catch (const Json::exception&) {
    throw UsageError(folder.string() + " is no failure bundle: it has no readable case.json");
  }
}

}  // namespace fsdp_cts
