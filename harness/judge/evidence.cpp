#include "harness/judge/evidence.hpp"

#include <fmt/format.h>

namespace fsdp_cts {

std::int64_t numel_of(const std::vector<std::int64_t>& shape) {
  std::uint64_t count = 1;  // unsigned: a testee's shape may be anything
  for (std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
  return static_cast<std::int64_t>(count);
}

std::string describe(const Place& place) {
  std::string text = place.what;
  if (!place.name.empty()) text += " of " + place.name;
  if (!place.model.empty() && place.model != "model") text += " in " + place.model;
  text += fmt::format(" at step {}", place.step);
  if (place.rank) text += fmt::format(" on rank {}", *place.rank);
  return text;
}

std::int64_t RankShard::elements() const {
  std::int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.length;
  return sum;
}

std::vector<const Place*> counterparts(const std::map<Place, Value>& values, const Place& place) {
  if (auto same = values.find(place); same != values.end()) return {&same->first};
  Place for_all = place;
  for_all.rank.reset();
  if (place.rank) {
    auto shared = values.find(for_all);
    return shared == values.end() ? std::vector<const Place*>{} : std::vector<const Place*>{&shared->first};
  }
  std::vector<const Place*> ranked;
  for (auto it = values.upper_bound(for_all); it != values.end(); ++it) {
    Place other = it->first;
    other.rank.reset();
    if (other != for_all) break;
    ranked.push_back(&it->first);
  }
  return ranked;
}

const Json* counterpart_fact(const Evidence& evidence, const Place& place) {
  if (auto same = evidence.facts.find(place); same != evidence.facts.end()) return &same->second;
  Place for_all = place;
  for_all.rank.reset();
  auto shared = evidence.facts.find(for_all);
  return shared == evidence.facts.end() ? nullptr : &shared->second;
}

std::vector<HeldPiece> held_pieces(const Evidence& evidence, const Place& place) {
  std::vector<HeldPiece> held;
  if (place.rank) return held;
  for (const RankShard& shard : evidence.shards) {
    Place unranked = shard.place;
    unranked.rank.reset();
    if (unranked != place) continue;
    for (const Piece& piece : shard.pieces) held.push_back({*shard.place.rank, piece});
  }
  return held;
}

std::optional<int> holder(const std::vector<HeldPiece>& held, std::int64_t index) {
  for (const auto& [rank, piece] : held) {
    if (index >= piece.offset && index < piece.offset + piece.length) return rank;
  }
  return std::nullopt;
}

std::optional<int> holder(const Evidence& evidence, const Place& place, std::int64_t index) {
  return place.rank ? place.rank : holder(held_pieces(evidence, place), index);
}

bool is_register(const std::string& what) {
  return what == "loss" || what == "output" || what.rfind("register:", 0) == 0;
}

bool is_tensor_list(const std::string& what) {
  return what == "parameters" || what == "gradients" || what == "full_parameters" || what == "buffers" ||
         what == "optimizer_state" || what.rfind("state_dict:", 0) == 0;
}

}  // namespace fsdp_cts
