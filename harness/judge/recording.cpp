#include "harness/judge/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "harness/judge/truths.hpp"

namespace fsdp_cts {
namespace {

const std::set<std::string> kept_facts = {"recorded", "seen_parameters", "units", "attempt"};

std::string key_of(const Place& place) {
  std::string key = fmt::format("{}/{}/{}/{}", place.step, place.what, place.model, place.name);
  if (place.rank) key += fmt::format("@{}", *place.rank);
  return key;
}

int integer(std::string_view text, const std::string& key) {
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    throw std::invalid_argument("'" + key + "' is no key of a recording");
  return value;
}

Place place_of(const std::string& key) {
  Place place;
  const auto step = key.find('/');
  const auto what = step == std::string::npos ? step : key.find('/', step + 1);
  const auto model = what == std::string::npos ? what : key.find('/', what + 1);
  if (model == std::string::npos) throw std::invalid_argument("'" + key + "' is no key of a recording");
  place.step = integer(std::string_view(key).substr(0, step), key);
  place.what = key.substr(step + 1, what - step - 1);
  place.model = key.substr(what + 1, model - what - 1);
  place.name = key.substr(model + 1);
  if (auto at = place.name.rfind('@'); at != std::string::npos) {
    place.rank = integer(std::string_view(place.name).substr(at + 1), key);
    place.name.resize(at);
  }
  return place;
}

bool same_value(const Value& a, const Value& b) {
  return a.none == b.none && a.tensor.dtype == b.tensor.dtype && a.tensor.shape == b.tensor.shape &&
         a.tensor.bytes == b.tensor.bytes;
}

bool same_fact(const Json& a, const Json& b) {
  return nlohmann::json(a) == nlohmann::json(b);
}

// Visits every entry once: those that all ranks agree on without a rank.
template <class Entries, class Same, class Visit>
void each_once(const Entries& entries, int world, const Same& same, const Visit& visit) {
  for (auto it = entries.begin(); it != entries.end();) {
    Place unranked = it->first;
    unranked.rank.reset();
    auto end = it;
    int count = 0;
    bool all_same = true;
    for (; end != entries.end(); ++end) {
      Place other = end->first;
      other.rank.reset();
      if (other != unranked) break;
      ++count;
      all_same = all_same && same(end->second, it->second);
    }
    if (count == world && all_same) {
      visit(unranked, it->second);
    } else {
      for (auto each = it; each != end; ++each) visit(each->first, each->second);
    }
    it = end;
  }
}

Json without_frame(const Json& entry) {
  Json value = Json::object();
  for (const auto& [key, part] : entry.items()) {
    if (key != "what" && key != "model" && key != "rank" && key != "name") value[key] = part;
  }
  // Which step an exception came from is counted by the harness; the exception is what is recorded.
  if (value.contains("error") && value["error"].is_object()) {
    value["error"].erase("step");
    value["error"].erase("verb");
  }
  return value;
}

}  // namespace

Recording to_recording(const Evidence& evidence, const Case& a_case) {
  const int world = a_case.world;
  const std::set<std::string> compared = compared_with(a_case, "golden");
  Recording recording;
  recording.directory = {{"none", Json::array()}, {"facts", Json::array()}};
  each_once(evidence.values, world, same_value, [&](const Place& place, const Value& value) {
    if (value.none) {
      recording.directory["none"].push_back(key_of(place));
    } else {
      recording.tensors[key_of(place)] = value.tensor;
    }
  });
  std::map<Place, Json> facts;
  for (const auto& [place, entry] : evidence.facts) {
    if (kept_facts.count(place.what) && compared.count(place.what)) facts[place] = without_frame(entry);
  }
  each_once(facts, world, same_fact, [&](const Place& place, const Json& value) {
    Json fact{{"step", place.step}, {"what", place.what}, {"model", place.model}};
    if (!place.name.empty()) fact["name"] = place.name;
    if (place.rank) fact["rank"] = *place.rank;
    fact["value"] = value;
    recording.directory["facts"].push_back(std::move(fact));
  });
  return recording;
}

Evidence from_recording(Recording recording) {
  Evidence evidence;
  for (auto& [key, tensor] : recording.tensors) evidence.values[place_of(key)].tensor = std::move(tensor);
  for (const Json& key : recording.directory.value("none", Json::array()))
    evidence.values[place_of(key.get<std::string>())].none = true;
  for (const Json& fact : recording.directory.value("facts", Json::array())) {
    Place place{fact.at("step").get<int>(),
                fact.at("what").get<std::string>(),
                fact.at("model").get<std::string>(),
                fact.value("name", std::string()),
                {}};
    if (fact.contains("rank")) place.rank = fact["rank"].get<int>();
    evidence.facts[place] = fact.at("value");
  }
  return evidence;
}

}  // namespace fsdp_cts
