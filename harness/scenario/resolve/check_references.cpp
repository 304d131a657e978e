#include "harness/scenario/resolve/check_references.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "harness/scenario/read/expectation_kinds.hpp"
#include "harness/scenario/resolve/module_state.hpp"
#include "harness/scenario/resolve/resolve_module.hpp"

namespace fsdp_cts {
namespace {

using Names = std::set<std::string>;

std::vector<std::string> listed(const Names& names) {
  return {names.begin(), names.end()};
}

Names keys_of(const Json& map) {
  Names keys;
  for (const auto& [key, value] : map.items()) keys.insert(key);
  return keys;
}

Names inputs_of(const Json& data) {
  Names names;
  for (const auto& [name, input] : data["inputs"].items()) {
    if (!input.contains("per_iteration")) names.insert(name);
    for (std::int64_t i = 0; i < input.value("per_iteration", std::int64_t{0}); ++i)
      names.insert(name + "." + std::to_string(i));
  }
  return names;
}

Names parameters_of(const Json& module) {
  Names names;
  for (const StateShape& state : module_state(module))
    if (!state.is_buffer) names.insert(state.name);
  return names;
}

// Follows a program from top to bottom: a name must be made before it is used.
class ProgramCheck {
 public:
  ProgramCheck(const Case& a_case, std::shared_ptr<const std::string> file, Mistakes& mistakes)
      : case_(a_case),
        file_(std::move(file)),
        mistakes_(mistakes),
        inputs_(inputs_of(a_case.data)),
        models_(keys_of(a_case.models)) {}

  void step(const Json& step) {
    line_ = step["line"];
    // What is used here was made before; what the verb makes is there from the next step on.
    for (const auto& [key, value] : step.items())
      if (const auto check = of_key().find(key); check != of_key().end()) (this->*check->second)(step, value);
    if (const auto check = of_verb().find(step["verb"].get_ref<const std::string&>());
        check != of_verb().end())
      (this->*check->second)(step);
  }

  Names attempts, labels;
  std::vector<const Json*> observations;  // the steps of the case's program that observe

 private:
  void note(const std::string& what) { mistakes_.add({file_, line_}, what); }

  void known(const char* kind, const std::string& name, const Names& names) {
    if (!names.count(name)) note(unknown_name(kind, name, listed(names)));
  }
  void known(const char* kind, const Json& name, const Names& names) {
    known(kind, name.get_ref<const std::string&>(), names);
  }

  void makes_register(const Json& step) { registers_.insert(step["into"].get<std::string>()); }

  // Of keys that mean the same at every verb.

  using KeyCheck = void (ProgramCheck::*)(const Json& step, const Json& value);
  static const std::map<std::string_view, KeyCheck>& of_key() {
    static const std::map<std::string_view, KeyCheck> checks = {
        {"label", &ProgramCheck::label},    {"method", &ProgramCheck::method},
        {"model", &ProgramCheck::model},    {"module", &ProgramCheck::module},
        {"ranks", &ProgramCheck::ranks},    {"scaler", &ProgramCheck::used_scaler},
        {"targets", &ProgramCheck::targets}};
    return checks;
  }

  void label(const Json&, const Json& label) { labels.insert(label.get<std::string>()); }

  void method(const Json& step, const Json& method) {
    if (!models_.count(step["model"])) return;
    const Json* owner =
        find_module(case_.models[step["model"].get<std::string>()], step.value("module", std::string()));
    if (owner) known("method", method, keys_of(owner->value("methods", Json::object())));
  }

  void model(const Json&, const Json& model) { known("model", model, models_); }

  void module(const Json& step, const Json& path) {
    if (!models_.count(step["model"])) return;
    const Json& model = case_.models[step["model"].get<std::string>()];
    if (!find_module(model, path.get<std::string>()))
      note(unknown_name("module", path.get<std::string>(), module_paths(model)));
  }

  void ranks(const Json&, const Json& ranks) {
    for (const Json& rank : ranks)
      if (rank >= case_.world)
        note("rank " + rank.dump() + " does not exist in a world of " + std::to_string(case_.world));
  }

  void targets(const Json& step, const Json& targets) {
    for (const Json& target : targets) module(step, target);
  }

  void used_scaler(const Json&, const Json& scaler) { known("scaler", scaler, scalers_); }

  // Of one verb, or of some that name the same things.

  using VerbCheck = void (ProgramCheck::*)(const Json& step);
  static const std::map<std::string_view, VerbCheck>& of_verb() {
    static const std::map<std::string_view, VerbCheck> checks = {
        {"attempt_begin", &ProgramCheck::attempt_begin},
        {"backward", &ProgramCheck::backward},
        {"clip_grad_norm", &ProgramCheck::makes_register},
        {"end_process", &ProgramCheck::end_process},
        {"foreach_mul", &ProgramCheck::foreach_mul},
        {"forward", &ProgramCheck::forward},
        {"leaf", &ProgramCheck::leaf},
        {"load_checkpoint", &ProgramCheck::load_checkpoint},
        {"load_optimizer_state_dict", &ProgramCheck::load_optimizer_state_dict},
        {"load_state_dict", &ProgramCheck::load_state_dict},
        {"loss", &ProgramCheck::loss},
        {"mutate", &ProgramCheck::mutate},
        {"observe", &ProgramCheck::observe},
        {"optimizer", &ProgramCheck::optimizer},
        {"optimizer_state_dict", &ProgramCheck::optimizer_state_dict},
        {"save_checkpoint", &ProgramCheck::of_optimizer},
        {"scale_loss", &ProgramCheck::scale_loss},
        {"scaler", &ProgramCheck::scaler},
        {"shard", &ProgramCheck::shard},
        {"state_dict", &ProgramCheck::state_dict},
        {"step", &ProgramCheck::of_optimizer},
        {"step_in_backward", &ProgramCheck::of_optimizer},
        {"take_gradient", &ProgramCheck::take_gradient},
        {"update_scale", &ProgramCheck::makes_register},
        {"zero_grad", &ProgramCheck::of_optimizer}};
    return checks;
  }

  void attempt_begin(const Json& step) { attempts.insert(step["name"].get<std::string>()); }

  void backward(const Json& step) { known("register", step["loss"], registers_); }

  void end_process(const Json& step) {
    const auto ends = step.value("ranks", std::set<int>{});
    if (ends.empty() || ends.size() == static_cast<std::size_t>(case_.world))
      note("end_process needs `ranks`, and not all of them: somebody must be left to notice");
  }

  void foreach_mul(const Json& step) {
    for (const Json& name : step["of"]) known("input", name, inputs_);
    makes_register(step);
  }

  void forward(const Json& step) {
    Names usable = inputs_;
    usable.insert(registers_.begin(), registers_.end());
    for (const Json& input : step["input"]) known("input or register", input, usable);
    const Json& output = step["output"];
    for (const Json& name : output.is_array() ? output : Json::array({output}))
      registers_.insert(name.get<std::string>());
  }

  void leaf(const Json& step) {
    known("input", step["input"], inputs_);
    makes_register(step);
  }

  void load_checkpoint(const Json& step) {
    of_optimizer(step);
    if (case_.continues.empty()) note("load_checkpoint in a case that continues none: see 'continues'");
    known("model", step["like"], models_);
    if (step.contains("optimizer") != step.contains("optimizer_like"))
      note("'optimizer' and 'optimizer_like' stand together or not at all");
    if (step.contains("optimizer_like")) known("optimizer", step["optimizer_like"], optimizers_);
  }

  void load_optimizer_state_dict(const Json& step) {
    of_optimizer(step);
    load_state_dict(step);
  }

  void load_state_dict(const Json& step) {
    known("state dict", step["from"], state_dicts_);
    if (step.contains("broadcast_from_rank0") && !full_state_dicts_.count(step["from"]))
      note("'broadcast_from_rank0' takes a state dict of kind full");
  }

  void loss(const Json& step) {
    for (const Json& name : step["of"]) known("register", name, registers_);
    if (step.contains("with")) known("input", step["with"], inputs_);
    makes_register(step);
  }

  void mutate(const Json& step) {
    if (step.contains("from")) known("input", step["from"], inputs_);
    if (models_.count(step["model"]))
      known("parameter", step["parameter"], parameters_of(case_.models[step["model"].get<std::string>()]));
  }

  void observe(const Json& step) {
    for (const Json& item : step["what"]) {
      const std::string what = item;
      if (what == "loss" || what == "output") known("register", what, registers_);
      if (what.starts_with("register:")) known("register", what.substr(9), registers_);
      if (what.starts_with("state_dict:")) known("state dict", what.substr(11), state_dicts_);
      if (what.starts_with("devices:")) known("state dict", what.substr(8), state_dicts_);
    }
    observations.push_back(&step);
  }

  void of_optimizer(const Json& step) {
    if (step.contains("optimizer")) known("optimizer", step["optimizer"], optimizers_);
  }

  void optimizer(const Json& step) { optimizers_.insert(step["as"].get<std::string>()); }

  void optimizer_state_dict(const Json& step) {
    of_optimizer(step);
    makes_state_dict(step);
  }

  void makes_state_dict(const Json& step) {
    const auto as = step["as"].get<std::string>();
    state_dicts_.insert(as);
    full_state_dicts_.erase(as);
  }

  void scale_loss(const Json& step) {
    known("register", step["loss"], registers_);
    makes_register(step);
  }

  void scaler(const Json& step) {
    of_optimizer(step);
    scalers_.insert(step["as"].get<std::string>());
  }

  void shard(const Json& step) {
    if (!case_.plans.contains(step["model"].get<std::string>()))
      note("model " + step["model"].dump() + " has no plan to apply");
  }

  void state_dict(const Json& step) {
    makes_state_dict(step);
    if (step["kind"] == "full")
      full_state_dicts_.insert(step["as"].get<std::string>());
    else if (step.contains("rank0_only") || step.contains("offload_to_cpu"))
      note("'rank0_only' and 'offload_to_cpu' belong to state dicts of kind full");
  }

  void take_gradient(const Json& step) {
    known("register", step["of"], registers_);
    makes_register(step);
  }

  const Case& case_;
  std::shared_ptr<const std::string> file_;
  Mistakes& mistakes_;
  const Names inputs_, models_;
  Names registers_, optimizers_, scalers_, state_dicts_, full_state_dicts_;
  int line_ = 0;
};

void check_expectation(const Json& expectation, const Case& a_case, const ProgramCheck& seen,
                       const SourcePlace& place, Mistakes& mistakes) {
  const std::string kind = expectation.begin().key();
  const Json& arguments = expectation.begin().value();
  const auto known = [&](const char* what, const std::string& name, const Names& names) {
    if (!names.count(name)) mistakes.add(place, unknown_name(what, name, listed(names)));
  };
  if (expectation.contains("model")) known("model", expectation["model"], keys_of(a_case.models));
  if (expectation.contains("label")) known("label", expectation["label"], seen.labels);
  if (!arguments.is_object()) return;
  if (kind == "error" || kind == "no_error") known("attempt", arguments["attempt"], seen.attempts);
  if (arguments.contains("labels"))
    for (const Json& label : arguments["labels"]) known("label", label, seen.labels);
  if (arguments.contains("between"))
    for (const Json& model : arguments["between"]) known("model", model, keys_of(a_case.models));

  for (const std::string& what : observations_needed(kind, arguments)) {
    const bool observed =
        std::any_of(seen.observations.begin(), seen.observations.end(), [&](const Json* step) {
          if (expectation.contains("label") && step->value("label", "") != expectation["label"]) return false;
          if (expectation.contains("model") && step->at("model") != expectation["model"]) return false;
          const Json& items = step->at("what");
          return std::find(items.begin(), items.end(), what) != items.end();
        });
    if (!observed)
      mistakes.add(place, kind + " looks at '" + what + "', which no step observes" +
                              (expectation.contains("label") ? " under this label" : ""));
  }
}

// Whether the instance is sharded within an attempt: that may be to see what is wrong with its plan refused.
bool is_attempted(const std::string& instance, const Json& program) {
  int attempts = 0;
  return std::any_of(program.begin(), program.end(), [&](const Json& step) {
    attempts += (step["verb"] == "attempt_begin") - (step["verb"] == "attempt_end");
    return attempts > 0 && step["verb"] == "shard" && step["model"] == instance;
  });
}

void check_plan(const std::string& instance, const Json& plan, const Case& a_case, const SourcePlace& place,
                Mistakes& mistakes) {
  const Json& model = a_case.models[instance];
  const auto exists = [&](const Json& path) {
    if (!find_module(model, path.get<std::string>()))
      mistakes.add(place, unknown_name("module in the plan of '" + instance + "'", path.get<std::string>(),
                                       module_paths(model)));
  };
  if (plan.contains("mesh") &&
      plan["mesh"][0].get<std::int64_t>() * plan["mesh"][1].get<std::int64_t>() != a_case.world)
    mistakes.add(place,
                 "mesh " + plan["mesh"].dump() + " does not fill a world of " + std::to_string(a_case.world));
  const std::int64_t shard_size = plan.contains("mesh") ? plan["mesh"][1].get<std::int64_t>() : a_case.world;
  const auto settings_exist = [&](const Json& settings) {
    for (const char* key : {"ignored_modules", "ignored_state_modules"})
      for (const Json& path : settings.value(key, Json::array())) exists(path);
    if (!settings.contains("ignored_parameters") && !settings.contains("shard_dims")) return;
    const Names names = parameters_of(model);
    std::vector<std::string> named = settings.value("ignored_parameters", std::vector<std::string>{});
    for (const std::string& name : keys_of(settings.value("shard_dims", Json::object())))
      named.push_back(name);
    for (const std::string& name : named)
      if (!names.count(name))
        mistakes.add(place, unknown_name("parameter in the plan of '" + instance + "'", name, listed(names)));
  };
  for (const Json& unit : plan["units"]) {
    for (const Json& path : unit["modules"]) exists(path);
    settings_exist(unit);
    if (unit.contains("enable_wrap") && unit["enable_wrap"].is_object()) settings_exist(unit["enable_wrap"]);
    const Json reshard = unit.value("reshard_after_forward", Json());
    if (!reshard.is_number_integer() || is_attempted(instance, a_case.program)) continue;
    if (reshard.get<std::int64_t>() < 1 || shard_size % reshard.get<std::int64_t>() != 0)
      mistakes.add(place, "reshard_after_forward " + reshard.dump() + " does not divide the shard group of " +
                              std::to_string(shard_size));
  }
}

}  // namespace

void check_references(const Case& a_case, const DataTree& scenario, Mistakes& mistakes) {
  const auto place_of = [&](const char* section, const std::string& key) {
    const DataTree* map = scenario.find(section);
    const DataTree* value = map ? map->find(key) : nullptr;
    return value ? value->place : scenario.place;
  };
  for (const auto& [instance, plan] : a_case.plans.items())
    if (a_case.models.contains(instance))
      check_plan(instance, plan, a_case, place_of("plans", instance), mistakes);

  ProgramCheck program(a_case, scenario.place.file, mistakes);
  for (const Json& step : a_case.program) program.step(step);
  for (const Json& expectation : a_case.expect)
    check_expectation(expectation, a_case, program, {scenario.place.file, expectation["line"].get<int>()},
                      mistakes);
}

}  // namespace fsdp_cts
