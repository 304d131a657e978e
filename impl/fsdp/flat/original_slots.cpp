#include "flat/original_slots.hpp"

#include <map>
#include <unordered_set>
#include <utility>

#include "fsdp/wrap/module_tree.hpp"

namespace fsdp::flat {
namespace {

using PlacesByModule = std::map<const torch::nn::Module*, std::vector<OriginalSlot>>;

PlacesByModule places_by_module(const torch::nn::Module& root) {
  PlacesByModule places;
  for (const auto& state : FlatState::all_under(root)) {
    if (!state->flat()) continue;
    const auto& members = state->flat()->shard().members();
    for (size_t i = 0; i < members.size(); ++i) {
      for (const auto& slot : members[i].slots) places[slot.key].push_back({slot.name, state, i, &slot, {}});
    }
  }
  return places;
}

class Walk {
 public:
  Walk(PlacesByModule places, Ties ties) : places_(std::move(places)), once_(ties == Ties::once) {}

  void visit(const torch::nn::Module& module, const std::string& prefix) {
    if (once_ && !modules_.insert(&module).second) return;
    // Managed parameters know where they were registered; the others fill the positions between.
    std::map<size_t, OriginalSlot> by_position;
    std::unordered_set<std::string> managed;
    std::unordered_set<size_t> taken;
    if (const auto entry = places_.find(&module); entry != places_.end()) {
      for (const auto& place : entry->second) {
        managed.insert(place.name);
        taken.insert(place.place->position);
        if (!is_new(&place.info())) continue;
        auto named = place;
        named.name = qualified(prefix, place.name);
        by_position.emplace(place.place->position, std::move(named));
      }
    }
    size_t position = 0;
    for (const auto& entry : own_parameters(module)) {
      if (managed.contains(entry.key()) || entry.key() == kFlatParameterName) continue;
      while (taken.contains(position)) ++position;
      if (entry.value().defined() && is_new(entry.value().unsafeGetTensorImpl()))
        by_position[position] = {qualified(prefix, entry.key()), nullptr, 0, nullptr, entry.value()};
      ++position;
    }
    for (auto& [at, slot] : by_position) found.push_back(std::move(slot));
    for (const auto& child : module.named_children()) visit(*child.value(), qualified(prefix, child.key()));
  }

  std::vector<OriginalSlot> found;

 private:
  bool is_new(const void* parameter) { return !once_ || parameters_.insert(parameter).second; }

  PlacesByModule places_;
  bool once_;
  std::unordered_set<const torch::nn::Module*> modules_;
  std::unordered_set<const void*> parameters_;
};

}  // namespace

std::vector<OriginalSlot> original_slots(const torch::nn::Module& root, Ties ties) {
  Walk walk(places_by_module(root), ties);
  walk.visit(root, "");
  return std::move(walk.found);
}

}  // namespace fsdp::flat
