#include "harness/scenario/resolve/check_references.hpp"

#include <algorithm>
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
    const std::string verb = step["verb"];
    if (step.contains("model")) known("model", step["model"], models_);
    if (step.contains("ranks"))
      for (const Json& rank : step["ranks"])
        if (rank >= case_.world)
          note("rank " + rank.dump() + " does not exist in a world of " + std::to_string(case_.world));
    if (verb == "end_process") {
      const auto ends = step.value("ranks", std::set<int>{});
      if (ends.empty() || ends.size() == static_cast<std::size_t>(case_.world))
        note("end_process needs `ranks`, and not all of them: somebody must be left to notice");
    }
    if (verb == "forward") forward(step);
    if (verb == "loss") loss(step);
    if (verb == "backward") known("register", step["loss"], registers_);
    if (verb == "leaf") {
      known("input", step["input"], inputs_);
      registers_.insert(step["into"].get<std::string>());
    }
    if (verb == "take_gradient") {
      known("register", step["of"], registers_);
      registers_.insert(step["into"].get<std::string>());
    }
    if (verb == "optimizer") optimizers_.insert(step["as"].get<std::string>());
    if (verb == "step" || verb == "step_in_backward" || verb.ends_with("optimizer_state_dict") ||
        (verb == "zero_grad" && step.contains("optimizer")))
      known("optimizer", step["optimizer"], optimizers_);
    if (verb == "scaler") {
      known("optimizer", step["optimizer"], optimizers_);
      scalers_.insert(step["as"].get<std::string>());
    }
    if (step.contains("scaler")) known("scaler", step["scaler"], scalers_);
    if (verb == "scale_loss") known("register", step["loss"], registers_);
    if (verb == "scale_loss" || verb == "update_scale") registers_.insert(step["into"].get<std::string>());
    if (verb == "shard" && !case_.plans.contains(step["model"].get<std::string>()))
      note("model " + step["model"].dump() + " has no plan to apply");
    if (verb == "mutate") mutate(step);
    if (verb == "state_dict" || verb == "optimizer_state_dict") {
      const auto as = step["as"].get<std::string>();
      state_dicts_.insert(as);
      full_state_dicts_.erase(as);
      if (verb == "state_dict" && step["kind"] == "full") full_state_dicts_.insert(as);
    }
    if (verb == "state_dict" && step["kind"] != "full" &&
        (step.contains("rank0_only") || step.contains("offload_to_cpu")))
      note("'rank0_only' and 'offload_to_cpu' belong to state dicts of kind full");
    if (verb == "load_state_dict" || verb == "load_optimizer_state_dict")
      known("state dict", step["from"], state_dicts_);
    if (step.contains("broadcast_from_rank0") && !full_state_dicts_.count(step["from"]))
      note("'broadcast_from_rank0' takes a state dict of kind full");
    if (verb.ends_with("_checkpoint")) checkpoint(step);
    if (verb == "foreach_mul") foreach_mul(step);
    if (verb == "clip_grad_norm") registers_.insert(step["into"].get<std::string>());
    if (verb == "observe") {
      observe(step);
      observations.push_back(&step);
    }
    if (step.contains("module")) module(step, step["module"]);
    if (step.contains("method")) method(step);
    if (step.contains("targets"))
      for (const Json& target : step["targets"]) module(step, target);
    if (verb == "attempt_begin") attempts.insert(step["name"].get<std::string>());
    if (step.contains("label")) labels.insert(step["label"].get<std::string>());
  }

  Names attempts, labels;
  std::vector<const Json*> observations;  // the steps of the case's program that observe

 private:
  void note(const std::string& what) { mistakes_.add({file_, line_}, what); }

  void known(const char* kind, const std::string& name, const Names& names) {
    if (!names.count(name)) note(unknown_name(kind, name, listed(names)));
  }

  void forward(const Json& step) {
    Names usable = inputs_;
    usable.insert(registers_.begin(), registers_.end());
    for (const Json& input : step["input"]) known("input or register", input, usable);
    const Json& output = step["output"];
    for (const Json& name : output.is_array() ? output : Json::array({output}))
      registers_.insert(name.get<std::string>());
  }

  void loss(const Json& step) {
    for (const Json& name : step["of"]) known("register", name, registers_);
    if (step.contains("with")) known("input", step["with"], inputs_);
    registers_.insert(step["into"].get<std::string>());
  }

  void foreach_mul(const Json& step) {
    for (const Json& name : step["of"]) known("input", name, inputs_);
    registers_.insert(step["into"].get<std::string>());
  }

  void checkpoint(const Json& step) {
    if (step.contains("optimizer")) known("optimizer", step["optimizer"], optimizers_);
    if (step["verb"] == "save_checkpoint") return;
    if (case_.continues.empty()) note("load_checkpoint in a case that continues none: see 'continues'");
    known("model", step["like"], models_);
    if (step.contains("optimizer") != step.contains("optimizer_like"))
      note("'optimizer' and 'optimizer_like' stand together or not at all");
    if (step.contains("optimizer_like")) known("optimizer", step["optimizer_like"], optimizers_);
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
  }

  void module(const Json& step, const std::string& path) {
    if (!models_.count(step["model"])) return;
    const Json& model = case_.models[step["model"].get<std::string>()];
    if (!find_module(model, path)) note(unknown_name("module", path, module_paths(model)));
  }

  void method(const Json& step) {
    if (!models_.count(step["model"])) return;
    const Json* owner =
        find_module(case_.models[step["model"].get<std::string>()], step.value("module", std::string()));
    if (owner) known("method", step["method"], keys_of(owner->value("methods", Json::object())));
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
