#include "harness/scenario/resolve/axes.hpp"

#include <algorithm>
#include <cctype>

namespace fsdp_cts {
namespace {

constexpr std::size_t max_combinations = 20'000;

struct AxisValue {
  std::string text;
  DataTree value;  // a scalar, or the bundle's variables
};

struct Axis {
  std::string name;
  std::vector<AxisValue> values;
  bool additional = false;
};

bool is_identifier(const std::string& name) {
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

bool fits_an_id(const std::string& text) {
  return !text.empty() && text.find_first_of(",=[]#/* \t\n\"'") == std::string::npos;
}

void check_name(const Scope& taken, const std::string& name, const SourcePlace& place, Mistakes& mistakes) {
  static const std::vector<std::string> reserved = {"world", "iteration", "true", "false",   "null",
                                                    "in",    "min",       "max",  "ceil_div"};
  if (!is_identifier(name))
    mistakes.add(place, "'" + name + "' cannot be a name: letters, digits and _ only");
  if (std::find(reserved.begin(), reserved.end(), name) != reserved.end() || taken.count(name))
    mistakes.add(place, "the name '" + name + "' is taken");
}

Axis read_axis(const DataTree::Entry& entry, bool additional, Mistakes& mistakes) {
  Axis axis{entry.key, {}, additional};
  const auto add = [&](const std::string& text, const DataTree& value, const SourcePlace& place) {
    if (!fits_an_id(text)) mistakes.add(place, "axis value '" + text + "' cannot stand in a case id");
    for (const AxisValue& other : axis.values)
      if (other.text == text)
        mistakes.add(place, "axis '" + axis.name + "' has the value '" + text + "' twice");
    axis.values.push_back({text, value});
  };
  for (const DataTree& value : entry.value.items) {
    if (value.is_scalar())
      add(scalar_text(value.scalar), value, value.place);
    else
      mistakes.add(value.place, "an axis value must be a scalar, found " + value.shown() +
                                    "; name a bundle: {name: {variables}}");
  }
  for (const DataTree::Entry& bundle : entry.value.entries) {
    if (bundle.value.is_map())
      add(bundle.key, bundle.value, {entry.value.place.file, bundle.line});
    else
      mistakes.add({entry.value.place.file, bundle.line},
                   "a bundle must be a map of variables, found " + bundle.value.shown());
  }
  if (axis.values.empty())
    mistakes.add({entry.value.place.file, entry.line}, "axis '" + axis.name + "' has no values");
  return axis;
}

std::vector<Axis> read_axes(const DataTree& scenario, Mistakes& mistakes) {
  std::vector<Axis> axes;
  Scope taken;
  for (const char* key : {"axes", "additional_axes"}) {
    const DataTree* listed = scenario.find(key);
    if (!listed || !listed->is_map()) continue;
    for (const DataTree::Entry& entry : listed->entries) {
      check_name(taken, entry.key, {listed->place.file, entry.line}, mistakes);
      taken[entry.key] = nullptr;
      axes.push_back(read_axis(entry, std::string_view(key) == "additional_axes", mistakes));
    }
  }
  return axes;
}

std::vector<int> read_worlds(const DataTree& scenario, Mistakes& mistakes) {
  std::vector<int> worlds;
  const DataTree* listed = scenario.find("worlds");
  if (!listed || !listed->is_list()) return worlds;
  for (const DataTree& world : listed->items) {
    if (!world.scalar.is_number_integer() || world.scalar < 1 || world.scalar > 1024)
      continue;  // reported by the table
    const int size = world.scalar.get<int>();
    if (std::find(worlds.begin(), worlds.end(), size) != worlds.end())
      mistakes.add(world.place, "world " + std::to_string(size) + " is listed twice");
    worlds.push_back(size);
  }
  if (worlds.empty()) mistakes.add(listed->place, "at least one world size is needed");
  return worlds;
}

void bind(Binding& binding, const Axis& axis, std::size_t index, Mistakes& mistakes) {
  const AxisValue& value = axis.values[index];
  binding.axes.emplace_back(axis.name, value.text);
  if (value.value.is_map()) {
    binding.scope[axis.name] = value.text;
    add_variables(binding.scope, &value.value, mistakes);
  } else {
    binding.scope[axis.name] = value.value.json();
  }
  if (index > 0 && axis.additional) binding.of_seed = false;
}

void check_quick_entry(const DataTree& entry, const std::vector<Axis>& axes, const std::vector<int>& worlds,
                       Mistakes& mistakes) {
  for (const DataTree::Entry& bound : entry.entries) {
    const SourcePlace place{entry.place.file, bound.line};
    std::vector<std::string> names = {"world"}, values;
    for (const Axis& axis : axes) {
      names.push_back(axis.name);
      if (axis.name != bound.key) continue;
      for (const AxisValue& value : axis.values) values.push_back(value.text);
    }
    if (bound.key == "world")
      for (const int world : worlds) values.push_back(std::to_string(world));
    if (std::find(names.begin(), names.end(), bound.key) == names.end()) {
      mistakes.add(place, unknown_name("axis in quick", bound.key, names));
    } else if (!bound.value.is_scalar()) {
      mistakes.add(place, "quick binds an axis to one value, found " + bound.value.shown());
    } else if (const std::string text = scalar_text(bound.value.scalar);
               std::find(values.begin(), values.end(), text) == values.end()) {
      mistakes.add(place, unknown_name("value of '" + bound.key + "' in quick", text, values));
    }
  }
}

bool matches_entry(const Binding& binding, const DataTree& entry, const std::vector<Axis>& axes,
                   int smallest_world) {
  const auto bound = [&](const std::string& name, const std::string& otherwise) {
    const DataTree* value = entry.find(name);
    return value && value->is_scalar() ? scalar_text(value->scalar) : otherwise;
  };
  if (std::to_string(binding.world) != bound("world", std::to_string(smallest_world))) return false;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (binding.axes[i].second != bound(axes[i].name, axes[i].values.front().text)) return false;
  return true;
}

}  // namespace

std::string Binding::suffix() const {
  std::string text = "[";
  for (const auto& [name, value] : axes) text += name + "=" + value + ",";
  return text + "world=" + std::to_string(world) + "]";
}

std::vector<Binding> expand_axes(const DataTree& scenario, Mistakes& mistakes) {
  const std::vector<Axis> axes = read_axes(scenario, mistakes);
  const std::vector<int> worlds = read_worlds(scenario, mistakes);
  std::size_t combinations = worlds.size();
  for (const Axis& axis : axes)
    combinations = std::min(max_combinations + 1, combinations * axis.values.size());
  if (combinations > max_combinations)
    mistakes.add(scenario.place, "more than " + std::to_string(max_combinations) + " cases in one scenario");
  if (combinations == 0 || combinations > max_combinations) return {};

  std::vector<DataTree> quick(1);  // one entry that binds nothing
  if (const DataTree* listed = scenario.find("quick"); listed && listed->is_list()) quick = listed->items;
  for (const DataTree& entry : quick) check_quick_entry(entry, axes, worlds, mistakes);
  const int smallest_world = *std::min_element(worlds.begin(), worlds.end());

  const DataTree* where = scenario.find("where");
  std::vector<bool> found(quick.size());
  std::vector<Binding> bindings;
  for (std::size_t number = 0; number < combinations; ++number) {
    std::vector<std::size_t> choice(axes.size());
    std::size_t rest = number / worlds.size();
    for (std::size_t i = axes.size(); i-- > 0; rest /= axes[i].values.size())
      choice[i] = rest % axes[i].values.size();

    Binding binding;
    binding.world = worlds[number % worlds.size()];
    binding.scope["world"] = binding.world;
    for (std::size_t i = 0; i < axes.size(); ++i) bind(binding, axes[i], choice[i], mistakes);
    if (!holds(where, binding.scope, mistakes)) continue;
    for (std::size_t i = 0; i < quick.size(); ++i) {
      if (!matches_entry(binding, quick[i], axes, smallest_world)) continue;
      binding.quick = found[i] = true;
    }
    bindings.push_back(std::move(binding));
  }
  if (bindings.empty()) mistakes.add(where->place, "'where' leaves no combination");
  // Where `where` leaves out the first values at the smallest world, the first case that exists stands for
  // them.
  if (!scenario.find("quick") && !bindings.empty() && !found.front()) bindings.front().quick = true;
  if (scenario.find("quick") && !bindings.empty())
    for (std::size_t i = 0; i < quick.size(); ++i)
      if (!found[i])
        mistakes.add(quick[i].place, "this quick entry binds a combination that 'where' leaves out");
  return bindings;
}

void add_variables(Scope& scope, const DataTree* let, Mistakes& mistakes) {
  if (!let) return;
  for (const DataTree::Entry& entry : let->entries) {
    check_name(scope, entry.key, {let->place.file, entry.line}, mistakes);
    // An unknown value keeps its name known, so that one mistake is not reported once per use.
    scope[entry.key] = evaluated(entry.value, scope, mistakes).json();
  }
}

}  // namespace fsdp_cts
