#include "harness/scenario/resolve/build_cases.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "harness/scenario/read/scenario_grammar.hpp"
#include "harness/scenario/resolve/axes.hpp"
#include "harness/scenario/resolve/check_references.hpp"
#include "harness/scenario/resolve/program.hpp"
#include "harness/scenario/resolve/resolve_module.hpp"
#include "harness/scenario/resolve/sections.hpp"

namespace fsdp_cts {
namespace {

std::vector<std::string> texts_of(const DataTree& map, std::string_view key) {
  std::vector<std::string> result;
  if (const DataTree* list = map.find(key))
    for (const DataTree& item : list->items)
      if (item.is_string()) result.push_back(item.scalar.get<std::string>());
  return result;
}

std::string source_text(const DataTree& tree) {
  const DataTree* source = tree.find("source");
  if (!source) return "";
  if (source->find("own")) return "own: " + source->text_at("own");
  if (!source->find("seed")) return source->text_at("file");
  return "seed " + source->text_at("seed") + ", lines " + source->text_at("lines") + " (" +
         source->text_at("file") + ")";
}

std::vector<std::string> requirements(const DataTree& tree, const Scope& scope, Mistakes& mistakes) {
  std::vector<std::string> result = texts_of(tree, "requires");
  if (const DataTree* listed = tree.find("requires"))
    for (const DataTree& item : listed->items)
      for (const DataTree::Entry& entry : item.entries)
        if (holds(&entry.value, scope, mistakes)) result.push_back(entry.key);
  return result;
}

std::optional<std::string> skip_reason(const DataTree& tree, const Scope& scope, Mistakes& mistakes) {
  const DataTree* listed = tree.find("skip");
  if (!listed) return std::nullopt;
  for (const DataTree& entry : listed->items)
    if (holds(entry.find("when"), scope, mistakes)) {
      const DataTree* reason = entry.find("reason");
      return reason ? scalar_text(evaluated(*reason, scope, mistakes).json()) : "";
    }
  return std::nullopt;
}

// The sentences of `cpu_form` that hold, as one text.
std::string cpu_form(const DataTree& tree, const Scope& scope, Mistakes& mistakes) {
  std::string text;
  if (const DataTree* listed = tree.find("cpu_form"))
    for (const DataTree& entry : listed->items)
      if (holds(entry.find("when"), scope, mistakes))
        text += (text.empty() ? "" : "; ") + entry.text_at("text");
  return text;
}

// Nothing where the case continues none.
const DataTree* continuation(const Scenario& scenario, const Binding& binding, Mistakes& mistakes) {
  const DataTree* written = scenario.tree.find("continues");
  return written && written->is_map() && holds(written->find("when"), binding.scope, mistakes) ? written
                                                                                               : nullptr;
}

std::optional<Damage> damage_of(const Scenario& scenario, const Binding& binding, Mistakes& mistakes) {
  const DataTree* written = continuation(scenario, binding, mistakes);
  const DataTree* damage = written ? written->find("damage") : nullptr;
  if (!damage) return std::nullopt;
  const DataTree resolved = evaluated(*damage, binding.scope, mistakes);
  static const Fields keys = {
      {"file", {.types = types::string, .words = {"first", "last", "largest"}}, true},
      {"how", {.types = types::string, .words = {"removed", "truncated", "altered", "extended"}}, true}};
  static const Rule rule{.types = types::map, .fields = &keys};
  check(resolved, rule, "continues.damage", Stage::evaluated, mistakes);
  return Damage{resolved.text_at("file"), resolved.text_at("how")};
}

// The id of the case that `continues` means: this one's with other values of the axes that it names.
std::string continued_case(const Scenario& scenario, const Binding& binding, Mistakes& mistakes) {
  const DataTree* written = continuation(scenario, binding, mistakes);
  if (!written) return "";
  Binding other = binding;
  for (const DataTree::Entry& entry : written->entries) {
    if (entry.key == "when" || entry.key == "damage") continue;
    const Json value = evaluated(entry.value, binding.scope, mistakes).json();
    const auto axis = std::find_if(other.axes.begin(), other.axes.end(),
                                   [&](const auto& each) { return each.first == entry.key; });
    const SourcePlace place{written->place.file, entry.line};
    if (axis != other.axes.end()) {
      axis->second = scalar_text(value);
    } else if (entry.key == "world" && value.is_number_integer()) {
      other.world = value.get<int>();
    } else {
      std::vector<std::string> names = {"when", "world", "damage"};
      for (const auto& [name, text] : other.axes) names.push_back(name);
      mistakes.add(place, unknown_name("axis in continues", entry.key, names));
    }
  }
  return scenario.id + other.suffix();
}

// What is continued must be there, and a chain of cases must begin somewhere.
void check_continued(const std::vector<Case>& cases, const DataTree& tree, Mistakes& mistakes) {
  std::map<std::string, std::string> continued;
  for (const Case& each : cases) continued[each.id] = each.continues;
  for (const Case& each : cases) {
    std::string id = each.continues;
    for (std::size_t length = 0; !id.empty(); ++length) {
      const auto found = continued.find(id);
      if (found == continued.end())
        mistakes.add(tree.find("continues")->place, each.id + " continues " + id + ", which does not exist");
      else if (length > cases.size())
        mistakes.add(tree.find("continues")->place, each.id + " continues itself in the end");
      if (found == continued.end() || length > cases.size()) break;
      id = found->second;
    }
  }
}

// A case claims the clauses that its own lines carry: of what the scenario lists, some are for other cases or
// for a twin.
void keep_carried(Case& a_case) {
  if (a_case.expect.empty()) return;
  std::set<std::string> carried;
  for (const Json& expectation : a_case.expect) {
    const Json clause = expectation.value("clause", Json::array());
    for (const Json& id : clause.is_array() ? clause : Json::array({clause}))
      if (id.is_string()) carried.insert(id);  // else a mistake that has been noted
  }
  std::erase_if(a_case.clauses, [&](const std::string& id) { return !carried.count(id); });
}

// Left to itself a scenario stands for upstream's cases where every additional axis has its first value, and
// a twin for none.
bool stands_for_upstream(const Scenario& scenario, const Binding& binding, Mistakes& mistakes) {
  const DataTree* source = scenario.tree.find("source");
  if (source && source->find("own")) return false;
  const DataTree* of_seed = scenario.tree.find("of_seed");
  const bool marked = of_seed ? holds(of_seed, binding.scope, mistakes) : scenario.id == scenario.method;
  return marked && (binding.of_seed || (of_seed && of_seed->is_string()));
}

// A section that is a map, evaluated and checked against its own entry of the scenario table.
Json section(const DataTree& tree, const char* key, const Scope& scope, Mistakes& mistakes) {
  const DataTree* written = tree.find(key);
  if (!written) return Json::object();
  const DataTree value = evaluated(*written, scope, mistakes);
  check(value, find_field(scenario_fields(), key)->rule, key, Stage::evaluated, mistakes);
  return value.json();
}

const DataTree& map_or_empty(const DataTree& tree, const char* key) {
  static const DataTree empty = tree_of(Json::object(), {});
  const DataTree* found = tree.find(key);
  return found && found->is_map() ? *found : empty;
}

const DataTree& list_or_empty(const DataTree& tree, const char* key) {
  static const DataTree empty = tree_of(Json::array(), {});
  const DataTree* found = tree.find(key);
  return found && found->is_list() ? *found : empty;
}

Json minimum_of(const DataTree& tree, const Scope& scope, const Json& expect, Mistakes& mistakes) {
  Json minimum = section(tree, "minimum", scope, mistakes);
  // Unit trees and the like are no tensors; that some were compared is seen to by the comparison itself.
  static const std::vector<std::string> facts = {"units", "attempt", "recorded", "seen_parameters"};
  const bool compares = std::any_of(expect.begin(), expect.end(), [](const Json& entry) {
    const char* kind = entry.contains("equal") ? "equal" : "match";
    if (!entry.contains(kind)) return false;
    const Json what = entry[kind].value("what", Json::array());
    return std::any_of(what.begin(), what.end(), [](const Json& name) {
      return std::find(facts.begin(), facts.end(), name) == facts.end();
    });
  });
  if (compares && !minimum.contains("elements")) minimum["elements"] = 1;
  return minimum;
}

// Fills in the sections of one case after another; what cases share is resolved once.
class SectionResolver {
 public:
  SectionResolver(const DataTree& tree, const ModelFiles& models)
      : tree_(tree),
        modules_(models),
        program_(list_or_empty(tree, "program")),
        expectations_(list_or_empty(tree, "expect")) {}

  void resolve(Case& result, const Scope& scope, Mistakes& mistakes) {
    const std::size_t noted = mistakes.noted();
    result.models = result.plans = Json::object();
    for (const DataTree::Entry& entry : map_or_empty(tree_, "models").entries)
      result.models[entry.key] = modules_.resolve(entry.value, scope, mistakes);
    for (const DataTree::Entry& entry : map_or_empty(tree_, "plans").entries)
      result.plans[entry.key] =
          made_.of(entry.value, scope, mistakes, [&] { return resolve_plan(entry.value, scope, mistakes); });
    result.switches = section(tree_, "switches", scope, mistakes);
    const DataTree& data = map_or_empty(tree_, "data");
    result.data = made_.of(data, scope, mistakes, [&] { return resolve_data(data, scope, mistakes); });
    result.program = program_.unroll(scope, mistakes);
    result.expect = expectations_.resolve(scope, result.lane, mistakes);
    result.minimum = minimum_of(tree_, scope, result.expect, mistakes);
    if (mistakes.noted() == noted) check_references(result, tree_, mistakes);
  }

 private:
  const DataTree& tree_;
  MadeParts made_;
  ModuleResolver modules_;
  ProgramUnroller program_;
  ExpectationResolver expectations_;
};

Lane lane_of(const DataTree& tree, const Scope& scope, Mistakes& mistakes) {
  const DataTree* written = tree.find("lane");
  if (!written) return Lane::tolerance;
  const DataTree lane = evaluated(*written, scope, mistakes);
  check(lane, find_field(scenario_fields(), "lane")->rule, "lane", Stage::evaluated, mistakes);
  return lane.scalar == "exact"       ? Lane::exact
         : lane.scalar == "structure" ? Lane::structure
                                      : Lane::tolerance;
}

}  // namespace

std::vector<Case> build_cases(const Scenario& scenario, const ModelFiles& models, const Wanted& wanted,
                              Mistakes& mistakes) {
  const DataTree& tree = scenario.tree;
  SectionResolver sections(tree, models);
  std::vector<Case> cases;
  for (Binding& binding : expand_axes(tree, mistakes)) {
    add_variables(binding.scope, tree.find("let"), mistakes);
    Case& result = cases.emplace_back();
    result.id = scenario.id + binding.suffix();
    result.scenario = scenario.id;
    result.method = scenario.method;
    result.seed = scenario.id.substr(0, scenario.id.find('/'));
    result.world = binding.world;
    result.lane = lane_of(tree, binding.scope, mistakes);
    result.requires_ = requirements(tree, binding.scope, mistakes);
    result.seed_cases = stands_for_upstream(scenario, binding, mistakes) ? 1 : 0;
    result.skip_reason = skip_reason(tree, binding.scope, mistakes);
    result.cpu_form = cpu_form(tree, binding.scope, mistakes);
    result.quick = binding.quick;
    result.continues = continued_case(scenario, binding, mistakes);
    result.damage = damage_of(scenario, binding, mistakes);
    result.axes = {binding.axes.begin(), binding.axes.end()};
    result.file = scenario.file;
    result.why = tree.text_at("why");
    result.clauses = texts_of(tree, "clauses");
    result.quirks = texts_of(tree, "quirks");
    result.source = source_text(tree);
    // What upstream returns early from is never run; its sections need not make sense.
    Mistakes ignored;
    if (!wanted || wanted(result))
      sections.resolve(result, binding.scope, result.skip_reason ? ignored : mistakes);
    keep_carried(result);
  }
  check_continued(cases, tree, mistakes);
  return cases;
}

void check_written_scenario(const Scenario& scenario, Mistakes& mistakes) {
  const DataTree& tree = scenario.tree;
  check_fields(tree, scenario_fields(), "", Stage::written, mistakes);
  if (const DataTree* program = tree.find("program")) check_written_program(*program, mistakes);
  if (const DataTree* expect = tree.find("expect")) check_written_expectations(*expect, mistakes);
  for (const DataTree::Entry& plan : map_or_empty(tree, "plans").entries)
    check_written_plan(plan.value, mistakes);
  for (const DataTree::Entry& entry : map_or_empty(tree, "plans").entries)
    if (!map_or_empty(tree, "models").find(entry.key))
      mistakes.add({tree.place.file, entry.line},
                   "a plan for '" + entry.key + "', which is no instance under models");
}

}  // namespace fsdp_cts
