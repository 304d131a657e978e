#include "reference/merge.hpp"

#include <algorithm>
#include <set>

namespace fsdp_cts::reference {
namespace {

using sdk::Json;
using sdk::Observation;

bool is_truth(const std::string& what) {
  static const std::set<std::string> known{
      "loss",     "output",          "parameters", "gradients",       "full_parameters",
      "buffers",  "optimizer_state", "recorded",   "seen_parameters", "units",
      "warnings", "attempt"};
  return known.contains(what) || what.starts_with("register:") || what.starts_with("state_dict:");
}

bool equal(const HostTensor& a, const HostTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes;
}

// One rank's version of an entry or an item, with the observation its tensors lie in.
struct Version {
  int rank;
  const Json* json;
  const Observation* observation;
};

std::vector<std::string> tensor_names(const Json& json) {
  std::vector<std::string> names;
  if (json.contains("tensor")) names.push_back(json.at("tensor"));
  for (const Json& piece : json.value("pieces", Json::array())) names.push_back(piece.at("tensor"));
  return names;
}

bool equal(const Version& a, const Version& b) {
  if (*a.json != *b.json) return false;
  const std::vector<std::string> names = tensor_names(*a.json);
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return equal(a.observation->tensors.at(name), b.observation->tensors.at(name));
  });
}

bool all_equal(const std::vector<Version>& versions) {
  return std::all_of(versions.begin(), versions.end(),
                     [&](const Version& v) { return equal(versions.front(), v); });
}

class Merger {
 public:
  explicit Merger(std::size_t world) : world_(world) {}

  Observation result;

  void add_entry(const std::vector<Version>& versions) {
    if (versions.front().json->contains("items")) return add_items(versions);
    if (versions.size() == world_ && all_equal(versions)) {
      return result.entries.push_back(taken(versions.front(), false));
    }
    for (const Version& version : versions) result.entries.push_back(taken(version, true));
  }

 private:
  void add_items(const std::vector<Version>& versions) {
    Json common = without_items(versions.front(), Json());
    std::vector<Json> own;
    for (const Version& version : versions) own.push_back(without_items(version, version.rank));
    const std::size_t count = versions.front().json->at("items").size();
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Version> items;
      for (const Version& v : versions) items.push_back({v.rank, &v.json->at("items").at(i), v.observation});
      if (versions.size() == world_ && all_equal(items)) {
        common["items"].push_back(taken_tensors(items.front(), false));
        continue;
      }
      for (std::size_t r = 0; r < items.size(); ++r) own[r]["items"].push_back(taken_tensors(items[r], true));
    }
    if (!common.at("items").empty() || count == 0) result.entries.push_back(std::move(common));
    for (Json& entry : own) {
      if (!entry.at("items").empty()) result.entries.push_back(std::move(entry));
    }
  }

  static Json without_items(const Version& version, Json rank) {
    return {{"what", version.json->at("what")},
            {"model", version.json->at("model")},
            {"rank", std::move(rank)},
            {"items", Json::array()}};
  }

  Json taken(const Version& version, bool by_rank) {
    Json entry = taken_tensors(version, by_rank);
    entry["rank"] = by_rank ? Json(version.rank) : Json();
    return entry;
  }

  // Takes the tensors over; a rank's own get its number behind their name.
  Json taken_tensors(const Version& version, bool by_rank) {
    Json json = *version.json;
    const auto take = [&](Json& holder) {
      const std::string name = holder.at("tensor");
      const std::string key = by_rank ? name + "@" + std::to_string(version.rank) : name;
      result.tensors[key] = version.observation->tensors.at(name);
      holder["tensor"] = key;
    };
    if (json.contains("tensor")) take(json);
    if (json.contains("pieces")) {
      for (Json& piece : json["pieces"]) take(piece);
    }
    return json;
  }

  std::size_t world_;
};

}  // namespace

std::optional<Observation> merge(const std::vector<std::optional<Observation>>& by_rank) {
  Merger merger(by_rank.size());
  const Observation* first = nullptr;
  std::size_t entries = 0;
  for (const auto& answer : by_rank) {
    if (!answer) continue;
    if (!first) first = &*answer;
    entries = std::max(entries, answer->entries.size());
  }
  if (!first) return std::nullopt;
  merger.result.step = first->step;
  merger.result.iteration = first->iteration;
  merger.result.label = first->label;
  for (std::size_t i = 0; i < entries; ++i) {
    if (!is_truth(first->entries.at(i).at("what"))) continue;
    std::vector<Version> versions;
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      if (by_rank[r]) versions.push_back({static_cast<int>(r), &by_rank[r]->entries.at(i), &*by_rank[r]});
    }
    merger.add_entry(versions);
  }
  return std::move(merger.result);
}

}  // namespace fsdp_cts::reference
