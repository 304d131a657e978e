#include "harness/generate/write.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "harness/generate/counts.hpp"
#include "harness/generate/refusals.hpp"

namespace fsdp_cts::generate {
namespace {

bool is_plain(const std::string& text) {
  if (text.empty() || !(std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_')) return false;
  static const std::set<std::string> words = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return !words.contains(lower) && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-';
  });
}

std::string word(const std::string& text) {
  return is_plain(text) ? text : Json(text).dump();
}

// JSON in YAML's flow form, with quotes only where they are needed.
std::string flow(const Json& value) {
  if (value.is_string()) return word(value.get<std::string>());
  std::string text;
  if (value.is_array()) {
    for (const Json& each : value) text += (text.empty() ? "" : ", ") + flow(each);
    return "[" + text + "]";
  }
  if (value.is_object()) {
    for (const auto& [key, each] : value.items())
      text += (text.empty() ? "" : ", ") + word(key) + ": " + flow(each);
    return "{" + text + "}";
  }
  return value.dump();
}

// A step or an expectation: its one key on the first line, what stands beside it below.
std::string entry(const Json& map) {
  std::string text;
  for (const auto& [key, value] : map.items())
    text += fmt::format("{}{}: {}\n", text.empty() ? "  - " : "    ", key, flow(value));
  return text;
}

// A pattern that finds exactly the parameters that `at` takes.
std::string pattern_of(const Sketch& sketch, const ParameterAt& at) {
  std::string name = at.name.empty() ? path_of(sketch, at.module) : name_of(sketch, at);
  std::string pattern = "^";
  for (const char c : name) pattern += c == '.' ? std::string("[.]") : std::string(1, c);
  if (!at.name.empty()) return pattern + "$";
  return name.empty() ? "." : pattern + "[.]";
}

class Writer {
 public:
  Writer(const Sketch& sketch, const Origin& origin, const std::string& why)
      : sketch_(sketch), fsdp1_(sketch.api != "fully_shard") {
    const std::string model = flow(root("ones"));
    const std::string loaded = flow(root("zeros"));  // so that a load changes buffers
    program();
    expectations();
    resume();
    refusals();
    text_ = fmt::format("id: {}\n", scenario_id(origin));
    text_ += fmt::format("source: {{own: \"drawn: fsdp-cts generate --seed {} --index {}\"}}\n", origin.seed,
                         origin.index);
    text_ += fmt::format("clauses: {}\nwhy: >-\n  {}\n", flow(Json(clauses_)), why);
    if (sketch.resumed) text_ += "axes: {stage: [1, 2]}\ncontinues: {when: stage > 1, stage: 1}\n";
    if (has_side(sketch)) other_models_ += sides();
    if (has_aside(sketch, AsideKind::foreign_state)) other_models_ += fmt::format("  other: {}\n", loaded);
    text_ += fmt::format("worlds: [{}]\n{}{}lane: exact\nmodels:\n  model: {}\n", sketch.world,
                         sketch.offload ? "requires: [gpu]\n" : "", switches(), model);
    if (sketch.resumed) text_ += fmt::format("  resumed: {}\n", loaded);
    text_ += other_models_;
    text_ += data();
    text_ += "plans:\n" + plan_of("model") + resumed_plan() + refused_plans_;
    if (has_aside(sketch, AsideKind::foreign_state)) text_ += plan_of("other");
    text_ += "program:\n" + steps_ + "expect:\n" + expect_;
    text_ += "minimum: {elements: 1, tensors: 1}\n";
  }

  std::string text() { return std::move(text_); }

 private:
  Json linear(int in, int out, bool bias) const {
    return {{"type", "Linear"}, {"in", in}, {"out", out}, {"bias", bias}};
  }

  static Json graph(Json children, Json forward, const std::string& output = "y") {
    Json module = {{"type", "Graph"}, {"inputs", {"x"}}};
    if (!children.empty()) module["children"] = std::move(children);
    module["forward"] = std::move(forward);
    module["output"] = output;
    return module;
  }
  static Json call(const std::string& child, const char* from, const char* to) {
    return {{"call", child}, {"args", {from}}, {"to", to}};
  }
  static void multiply_by_gain(Json& module, const std::string& from, int width) {
    module["parameters"] = {{"gain", {{"shape", {width}}}}};
    module["forward"].push_back({{"parameter", "gain"}, {"to", "g"}});
    module["forward"].push_back({{"mul", {from, "g"}}, {"to", "y"}});
  }

  Json module_of(const Block& block, int in, const char* buffers) const {
    switch (block.kind) {
      case BlockKind::linear:
        return linear(in, block.width, block.bias);
      case BlockKind::relu:
        return {{"type", "ReLU"}};
      case BlockKind::nested: {
        Json children = Json::array({linear(in, block.middle, block.bias)});
        if (block.relu) children.push_back({{"type", "ReLU"}});
        children.push_back(linear(block.middle, block.width, block.bias));
        return {{"type", "Sequential"}, {"children", children}};
      }
      case BlockKind::residual:
        return graph({{inner_name(block), linear(in, in, block.bias)}},
                     {call(inner_name(block), "x", "h"), {{"add", {"x", "h"}}, {"to", "y"}}});
      case BlockKind::twice:
        return graph({{inner_name(block), linear(in, in, block.bias)}},
                     {call(inner_name(block), "x", "h"), call(inner_name(block), "h", "y")});
      case BlockKind::tied: {
        Json module = graph({{"a", linear(in, in, block.bias)}, {"b", linear(in, in, block.bias)}},
                            {call("a", "x", "h"), call("b", "h", "y")});
        module["tie"] = Json::array({Json::array({"b.weight", "a.weight"})});
        return module;
      }
      case BlockKind::spare:
        return graph(
            {{"used", linear(in, block.width, block.bias)}, {"spare", linear(in, block.width, block.bias)}},
            Json::array({call("used", "x", "y")}));
      case BlockKind::gain: {
        Json module = graph(Json::object(), Json::array());
        multiply_by_gain(module, "x", in);
        return module;
      }
      case BlockKind::shift: {
        Json module =
            graph(Json::object(), {{{"buffer", "shift"}, {"to", "s"}}, {{"add", {"x", "s"}}, {"to", "y"}}});
        module["buffers"] = {
            {"shift",
             {{"shape", block.scalar ? Json::array() : Json{in}}, {"dtype", "float32"}, {"fill", buffers}}}};
        return module;
      }
      case BlockKind::side:
        return linear(sketch_.in, in, block.bias);
      case BlockKind::empty: {
        Json module = graph(Json::object(), Json::array(), "x");
        module["parameters"] = {{"empty", {{"shape", {0, in}}}}};
        return module;
      }
    }
    return nullptr;
  }

  Json root(const char* buffers) const {
    Json children = Json::array();
    for (std::size_t i = 0; i < sketch_.blocks.size(); ++i)
      children.push_back(module_of(sketch_.blocks[i], width_before(sketch_, i), buffers));
    if (!calls_root_as_graph(sketch_)) return {{"type", "Sequential"}, {"children", children}};
    Json named = Json::object(), forward = Json::array();
    std::string from = "x", side;
    if (!sketch_.second.empty()) {
      forward.push_back({{"add", {"x", "z"}}, {"to", "both"}});
      from = "both";
    }
    const std::string input = from;
    for (std::size_t i = 0; i < children.size(); ++i) {
      const std::string name = std::to_string(i), to = "h" + name;
      const bool beside = sketch_.blocks[i].kind == BlockKind::side;
      named[name] = children[i];
      forward.push_back({{"call", name}, {"args", {beside ? input : from}}, {"to", to}});
      if (sketch_.blocks[i].recompute) forward.back()["recompute"] = true;
      (beside ? side : from) = to;
    }
    if (sketch_.guard) {
      forward.push_back({{"finite_gradient", from}, {"to", "guarded"}});
      from = "guarded";
    }
    Json module = graph(named, forward, from);
    if (!sketch_.second.empty()) module["inputs"].push_back("z");
    if (sketch_.root_gain) {
      multiply_by_gain(module, from, out_width());
      module["output"] = "y";
    }
    if (!side.empty()) module["output"] = {module["output"], side};
    return module;
  }

  // What becomes of two outputs, one model for each use of them.
  static std::string sides() {
    const auto of = [](const char* name, Json forward, const char* output) {
      const Json model = {
          {"type", "Graph"}, {"inputs", {"p", "q"}}, {"forward", std::move(forward)}, {"output", output}};
      return fmt::format("  {}: {}\n", name, flow(model));
    };
    return of("both", Json::array({{{"add", {"p", "q"}}, {"to", "y"}}}), "y") +
           of("main", Json::array(), "p") + of("side", Json::array(), "q");
  }
  Json mixed(Uses uses) const {
    const char* model = uses == Uses::both ? "both" : uses == Uses::main ? "main" : "side";
    return {{"forward", {{"input", {"output", "beside"}}, {"model", model}, {"output", "mixed"}}}};
  }
  Json loss(const std::string& cotangent) const {
    Json loss = {{"kind", "dot"}, {"with", cotangent}};
    if (has_side(sketch_)) loss["of"] = "mixed";
    return {{"loss", loss}};
  }

  std::string switches() const {
    Json switches = Json::object();
    if (sketch_.full_precision_in_eval) switches["FSDP_USE_FULL_PREC_IN_EVAL"] = "1";
    if (sketch_.order_checked) switches["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL";
    return switches.empty() ? "" : "switches: " + flow(switches) + "\n";
  }

  int out_width() const { return width_before(sketch_, sketch_.blocks.size()); }
  int passes() const {
    std::size_t count = 0;
    for (const Iteration& each : sketch_.iterations) count += each.micro_batches.size();
    return static_cast<int>(count);
  }

  // Only what three or five ranks add up to a multiple of their number has an exact mean, so that their
  // cotangents are multiples of it.
  int cotangent_unit() const { return sketch_.world % 2 == 1 ? sketch_.world : 1; }

  std::string data() const {
    std::string text =
        fmt::format("data:\n  seed: {}\n  formula: dyadic\n  levels: 1\n  unit: 1\n", sketch_.data_seed);
    if (sketch_.synced) text += "  per_rank: [\"model:*\"]\n";
    text += "  inputs:\n";
    text += fmt::format("    x: {{shape: [{}, {}], dtype: {}, per_rank: true, per_iteration: {}}}\n",
                        sketch_.rows, sketch_.in, sketch_.x_dtype, passes());
    if (!sketch_.second.empty())
      text += fmt::format("    z: {{shape: [{}, {}], dtype: {}, per_rank: true, per_iteration: {}}}\n",
                          sketch_.rows, sketch_.in, sketch_.second, passes());
    text += fmt::format("    cotangent: {{shape: [{}, {}]{}, unit: {}, per_rank: true, per_iteration: {}}}\n",
                        sketch_.rows, out_width(), in_dtype(), cotangent_unit(), passes());
    for (const auto& [name, shape] : patches_)
      text += fmt::format("    {}: {{shape: {}{}}}\n", name, flow(shape), in_dtype());
    for (const std::string& each : other_inputs_) text += each;
    return text;
  }

  std::string in_dtype() const {
    return sketch_.dtype == "float32" ? "" : fmt::format(", dtype: {}", sketch_.dtype);
  }

  std::string plan_of(const std::string& model) const {
    std::string text = fmt::format("  {}:\n    api: {}\n", model, sketch_.api);
    if (!sketch_.mesh.empty()) text += fmt::format("    mesh: {}\n", flow(Json(sketch_.mesh)));
    if (sketch_.mesh_of_groups) text += "    mesh_from: groups\n";
    text += "    units:\n";
    Json ignored = Json::object();
    for (const ParameterAt& pattern : sketch_.ignored) {
      // FSDP1 takes modules as well, and policies leave them alone.
      if (fsdp1_ && pattern.name.empty() && !pattern.module.is_root() && !has_unit_in(pattern.module)) {
        ignored[sketch_.api == "composable" ? "ignored_state_modules" : "ignored_modules"].push_back(
            path_of(sketch_, pattern.module));
        continue;
      }
      for (const ParameterInfo& each : parameters_of(sketch_))
        if (takes(pattern, each.at)) ignored["ignored_parameters"].push_back(each.name);
    }
    for (const ModuleAt& module : sketch_.outside) {
      Json written = {{"modules", {path_of(sketch_, module)}}};
      const Json& root = sketch_.units.back().settings;
      if (root.contains("use_orig_params")) written["use_orig_params"] = root["use_orig_params"];
      written["enable_wrap"] = "outside";
      text += "      - " + flow(written) + "\n";
    }
    for (const Unit& unit : sketch_.units) {
      Json written = {{"modules", Json::array()}};
      for (const ModuleAt& module : unit.modules) written["modules"].push_back(path_of(sketch_, module));
      written.update(sketch_.in_context ? in_context(unit.settings) : unit.settings);
      written.update(ignored);
      for (const ParameterAt& each : sketch_.columns)
        if (&sketch_.units[unit_of(sketch_, each)] == &unit)
          written["shard_dims"][name_of(sketch_, each)] = sketch_.columns.size() > 1 ? -1 : 1;
      if (sketch_.meta && fsdp1_) written["param_init"] = "data";
      if (sketch_.synced) written["sync_module_states"] = true;
      if (sketch_.offload) written["cpu_offload"] = true;
      if (!sketch_.auto_wrap.is_null()) written["auto_wrap"] = sketch_.auto_wrap;
      text += "      - " + flow(written) + "\n";
    }
    return text;
  }

  // What the second model may be without being told everything that the first one is.
  std::string resumed_plan() const {
    if (!sketch_.resumed) return "";
    std::string text = fmt::format("  resumed:\n    api: {}\n    units:\n", sketch_.resumed->api);
    for (const Unit& unit : sketch_.units) {
      if (sketch_.resumed->root_alone && !unit.modules.front().is_root()) continue;
      // FSDP1 has a unit for each module of a list.
      const bool together = sketch_.resumed->api == "fully_shard";
      for (std::size_t i = 0; i < unit.modules.size(); i += together ? unit.modules.size() : 1) {
        Json written = {{"modules", Json::array()}};
        for (std::size_t k = i; k < (together ? unit.modules.size() : i + 1); ++k)
          written["modules"].push_back(path_of(sketch_, unit.modules[k]));
        // A flat parameter is frozen, and has a state, as a whole.
        const bool in_part = !sketch_.frozen.empty() || leaves_layers_out(sketch_) ||
                             has_aside(sketch_, AsideKind::set_requires_grad);
        if (sketch_.resumed->api == "fsdp" && in_part) written["use_orig_params"] = true;
        text += "      - " + flow(written) + "\n";
      }
    }
    return text;
  }

  // Ignored modules may not hold units.
  bool has_unit_in(const ModuleAt& module) const {
    return std::any_of(sketch_.units.begin(), sketch_.units.end(), [&](const Unit& unit) {
      return std::any_of(unit.modules.begin(), unit.modules.end(),
                         [&](const ModuleAt& each) { return holds(module, each); });
    });
  }

  // The strategy is the call's own and goes before the context's, which is another one (WR-10).
  static Json in_context(Json settings) {
    const std::string strategy = settings.value("sharding_strategy", "FULL_SHARD");
    settings["sharding_strategy"] = strategy == "FULL_SHARD" ? "SHARD_GRAD_OP" : "FULL_SHARD";
    Json own = {{"sharding_strategy", strategy}};
    if (settings.contains("use_orig_params")) own["use_orig_params"] = settings["use_orig_params"];
    settings.erase("use_orig_params");
    own["enable_wrap"] = settings;
    return own;
  }

  void step(Json verb) { steps_ += entry(verb); }
  void observe(const Json& what, const std::string& label) {
    for (const Json& each : what) {
      observed_.insert(each.get<std::string>());
      if (each == "registered_parameters") registered_at_.insert(label);
    }
    step({{"observe", what}, {"label", label}});
  }

  // What the model is called with.
  Json inputs(const std::string& x, int pass) const {
    return sketch_.second.empty() ? Json(x) : Json{x, "z." + std::to_string(pass)};
  }

  Json forward(const Json& input) const {
    if (!has_side(sketch_) && !sketch_.host_inputs) return {{"forward", input}};
    return {{"forward", call_of(input, has_side(sketch_) ? Json{"output", "beside"} : Json("output"))}};
  }
  // Without gradients, or in vain.
  Json probe(const Json& input) const {
    return call_of(input, has_side(sketch_) ? Json{"probe", "probe_beside"} : Json("probe"));
  }
  Json call_of(const Json& input, const Json& output) const {
    Json call = {{"input", input}, {"output", output}};
    if (sketch_.host_inputs) call["host"] = true;
    return call;
  }

  // Under a label of its own, so that its gathers are counted apart from those of training.
  void forward_only() {
    Json vain = probe(inputs("x.0", 0)), what = {"register:probe", "trace"};
    vain["grad"] = false;
    step({{"forward", vain}});
    if (has_side(sketch_)) what.push_back("register:probe_beside");
    observe(what, "aside" + std::to_string(probes_++));
  }

  void aside(const Aside& aside) {
    const std::string path = path_of(sketch_, aside.at.module);
    switch (aside.kind) {
      case AsideKind::eval_forward:
        step({{"mode", "eval"}});
        forward_only();
        return step({{"mode", "train"}});
      case AsideKind::no_grad_forward:
        return forward_only();
      case AsideKind::part_forward: {
        const int width = width_into(sketch_, aside.at.module);
        const std::string input = fmt::format("part{}", width);
        add_input(input, fmt::format("{{shape: [{}, {}], dtype: {}, per_rank: true}}", sketch_.rows, width,
                                     sketch_.x_dtype));
        step({{"forward", {{"input", input}, {"module", path}, {"output", "probe"}, {"grad", false}}}});
        return observe({"register:probe", "trace"}, "aside" + std::to_string(probes_++));
      }
      case AsideKind::part_state: {
        const std::string as = fmt::format("saved{}", states_++);
        step({{"state_dict", {{"as", as}, {"kind", aside.value ? "sharded" : "full"}, {"module", path}}}});
        observe({"state_dict:" + as}, "saved");
        return step({{"load_state_dict", {{"from", as}, {"module", path}}}});
      }
      case AsideKind::foreign_state:
        return foreign_state(aside);
      case AsideKind::refused_scope:
        return attempt("first_rank_writes",
                       {{{"within", {{"scope", "summon"}, {"rank0_only", true}}},
                         {"do", Json::array({{{"delay", 0}}})}}},
                       "NotImplementedError", "is not supported", "FP-SUMMON-5");
      case AsideKind::unshard:
        return step({{"unshard", aside.value ? Json{{"module", path}, {"async", true}} : Json(path)}});
      case AsideKind::unshard_and_reshard:
        step({{"unshard", path}});
        return step({{"reshard", path}});
      case AsideKind::summon_mutate: {
        const std::string patch = fmt::format("patch{}", patches_.size());
        patches_.emplace_back(patch, Json(shape_of(sketch_, aside.at)));
        steps_ += "  - within: {scope: summon, writeback: true}\n    do:\n";
        steps_ += fmt::format("      - mutate: {{parameter: {}, from: {}}}\n",
                              word(name_of(sketch_, aside.at)), patch);
        return observe({"parameters"}, "mutated");
      }
      case AsideKind::replace:
        return replace(aside.at);
      case AsideKind::write:
        step({{"mutate", {{"parameter", name_of(sketch_, aside.at)}, {"how", "inplace"}, {"fill", 2}}}});
        return observe({"parameters"}, "written");
      case AsideKind::write_gradient:
        step({{"mutate",
               {{"parameter", name_of(sketch_, aside.at)},
                {"what", "grad"},
                {"how", "inplace"},
                {"fill", cotangent_unit()}}}});
        return observe({"gradients"}, "written");
      case AsideKind::drop_gradients:
        step({{"zero_grad", {{"optimizer", optimizer_}, {"set_to_none", aside.value}}}});
        return observe({"gradients"}, "dropped");
      case AsideKind::assign_gradient: {
        const std::string how = aside.options.at("how");
        Json mutate = {{"parameter", name_of(sketch_, aside.at)}, {"what", "grad"}, {"how", how}};
        if (how != "none") mutate["fill"] = cotangent_unit();
        step({{"mutate", mutate}});
        return observe({"gradients"}, "assigned");
      }
      case AsideKind::full_state:
        return saved_and_loaded("full", aside.at);
      case AsideKind::sharded_state:
        return saved_and_loaded("sharded", aside.at);
      case AsideKind::local_state:
        return saved_and_loaded("local", {});
      case AsideKind::first_rank_state:
        return first_rank_state();
      case AsideKind::optimizer_state: {
        const std::string as = fmt::format("saved{}", states_++), before = optimizer_;
        const char* kind = aside.value ? "full" : "sharded";
        step({{"optimizer_state_dict", {{"as", as}, {"optimizer", before}, {"kind", kind}}}});
        observe({"state_dict:" + as}, "saved");
        kept_.push_back("state_dict:" + as);
        if (!aside.options.contains("same")) make_optimizer("optimizer_" + as);
        step({{"load_optimizer_state_dict", {{"from", as}, {"optimizer", optimizer_}}}});
        return;
      }
      case AsideKind::summon:
        return summon(aside);
      case AsideKind::failed_forward:
        add_input("wide", fmt::format("{{shape: [{}, {}], dtype: {}}}", sketch_.rows, sketch_.in + 1,
                                      sketch_.x_dtype));
        return attempt("too_wide", {{{"forward", probe(inputs("wide", 0))}}}, "RuntimeError", "size|shape",
                       "G-2");
      case AsideKind::failed_backward:
        return failed_backward();
      case AsideKind::set_requires_grad:
        return step(
            {{"set_requires_grad", {{"value", aside.value}, {"match", pattern_of(sketch_, aside.at)}}}});
      case AsideKind::set_reshard_after_forward:
        return step({{"set_reshard_after_forward", {{"value", aside.value}, {"module", path}}}});
      case AsideKind::clip:
        return clip(aside.value ? Clip::sum : Clip::largest);
    }
  }

  void failed_backward() {
    add_input("overflow", fmt::format("{{shape: [{}, {}]{}, kind: full, value: inf}}", sketch_.rows,
                                      out_width(), in_dtype()));
    std::vector<Json> steps = {forward(inputs("x.0", 0)), loss("overflow"), {{"backward", "loss"}}};
    if (has_side(sketch_)) steps.insert(steps.begin() + 1, mixed(Uses::both));
    attempt("overflow", steps, "RuntimeError", "a gradient is not finite", "G-2");
    step({{"zero_grad", {{"optimizer", optimizer_}}}});
  }

  void clip(Clip by) {
    const Json norm = by == Clip::sum ? Json(1) : Json("inf");
    step({{"clip_grad_norm", {{"max_norm", 1048576}, {"norm_type", norm}, {"into", "norm"}}}});
    observe({"gradients", "register:norm"}, "clipped");
  }

  void add_input(const std::string& name, const std::string& description) {
    const std::string line = fmt::format("    {}: {}\n", name, description);
    if (std::find(other_inputs_.begin(), other_inputs_.end(), line) == other_inputs_.end())
      other_inputs_.push_back(line);
  }

  static std::string indented(const std::string& lines) {
    std::string text;
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = lines.find('\n', at) + 1;
      text += "    " + lines.substr(at, end - at);
      at = end;
    }
    return text;
  }

  void attempt(const std::string& what, const std::vector<Json>& steps, const char* type, const char* message,
               const char* clause) {
    const std::string name = fmt::format("{}{}", what, attempts_.size());
    steps_ += fmt::format("  - attempt: {}\n    do:\n", name);
    for (const Json& each : steps) steps_ += indented(entry(each));
    attempts_.push_back({name, type, message, clause});
    observe({"trace"}, "failed");  // so that its collectives are not counted with those of training
  }

  void replace(const ParameterAt& at) {
    step({{"mutate", {{"parameter", name_of(sketch_, at)}, {"how", "data"}, {"fill", 2}}}});
  }

  void saved_and_loaded(const std::string& kind, const ParameterAt& replaced) {
    const std::string as = fmt::format("saved{}", states_++);
    const bool sharded = kind == "sharded";
    step({{"state_dict", {{"as", as}, {"kind", kind}}}});
    if (kind == "full" || (sharded && fsdp1_)) kept_.push_back("state_dict:" + as);
    if (kind != "local")
      observe(sharded ? Json{"state_dict:" + as, "warnings"} : Json{"state_dict:" + as},
              sharded ? "saved_shards" : "saved");
    // A sharded state dict may be the shards themselves.
    if (kind != "sharded") step({{"zero_parameters", "model"}});
    if (!replaced.name.empty()) replace(replaced);
    step({{"load_state_dict", as}});
    observe({"parameters"}, "loaded");
  }

  void foreign_state(const Aside& aside) {
    const std::string as = fmt::format("saved{}", states_++);
    step({{"build", "other"}});
    step({{"cast", {{"dtype", aside.options["dtype"]}, {"model", "other"}}}});
    step({{"shard", "other"}});
    step({{"state_dict", {{"as", as}, {"model", "other"}, {"kind", aside.value ? "sharded" : "full"}}}});
    step({{"load_state_dict", {{"from", as}, {"model", "model"}}}});
    observe({"parameters"}, "loaded");
  }

  void first_rank_state() {
    const std::string as = fmt::format("saved{}", states_++);
    step({{"state_dict", {{"as", as}, {"kind", "full"}, {"rank0_only", true}, {"offload_to_cpu", true}}}});
    observed_.insert("state_dict:" + as);
    step({{"observe", {"state_dict:" + as}}, {"ranks", {0}}, {"label", "saved"}});
    step({{"observe", {"devices:" + as}}, {"label", "saved"}});
    first_rank_states_.push_back(as);
    if (fsdp1_) return;
    step({{"zero_parameters", "model"}});
    step({{"load_state_dict", {{"from", as}, {"broadcast_from_rank0", true}}}});
    observe({"parameters"}, "loaded");
  }

  void summon(const Aside& aside) {
    Json scope = aside.options;
    scope["scope"] = "summon";
    const bool part = scope.erase("part") > 0;
    const int unit = unit_of(sketch_, aside.at);
    if (part) scope["module"] = path_of(sketch_, sketch_.units[unit].modules.front());
    steps_ += fmt::format("  - within: {}\n    do:\n", flow(scope));
    const bool recurse = scope.value("recurse", true), first_alone = scope.value("rank0_only", false);
    if (recurse && !part) {
      Json look = {{"observe", {"full_parameters"}}, {"label", "summoned"}};
      if (scope.value("with_grads", false)) look["observe"].push_back("gradients");
      if (first_alone) look["ranks"] = {0};
      steps_ += indented(entry(look));
    }
    if (const auto count =
            registered_within(part ? sketch_.units[unit].modules.front() : ModuleAt{}, recurse)) {
      const std::string label = fmt::format("scope{}", registered_in_scopes_.size());
      Json look = {{"observe", {"registered_parameters"}}, {"label", label}};
      if (scope.value("offload_to_cpu", false) && recurse && !part && sketch_.ignored.empty()) {
        look["observe"].push_back("devices");
        expect(
            {{"devices", {{"is", "cpu"}, {"ranks", first_alone ? Json{0} : Json("all")}}}, {"label", label}},
            "FP-SUMMON-10");
      }
      if (first_alone) look["ranks"] = {0};
      steps_ += indented(entry(look));
      registered_in_scopes_.emplace_back(label, *count);
    }
    // Without `recurse` the root's own parameters alone are whole.
    const bool whole =
        recurse || part ||
        (unit >= 0 && sketch_.auto_wrap.is_null() && sketch_.units[unit].modules.front().is_root());
    if (aside.value)
      steps_ += indented(entry({{"mutate",
                                 {{"parameter", name_of(sketch_, aside.at)},
                                  {"what", "grad"},
                                  {"how", "inplace"},
                                  {"fill", cotangent_unit()}}}}));
    if (whole && !first_alone) {
      const std::string patch = fmt::format("patch{}", patches_.size());
      patches_.emplace_back(patch, Json(shape_of(sketch_, aside.at)));
      steps_ += indented(entry({{"mutate", {{"parameter", name_of(sketch_, aside.at)}, {"from", patch}}}}));
    } else if (!recurse) {
      steps_ += "      - delay: 0\n";
    }
    Json left = {"parameters", "training_state"};
    if (scope.value("offload_to_cpu", false)) {
      const std::string label = fmt::format("said{}", states_++);
      observe({"warnings"}, label);
      const Json text = {{"message", "offload_to_cpu=True and rank0_only=False may result in"}};
      Json said = {{first_alone ? "no_warning" : "warning", text}, {"label", label}};
      if (!first_alone) said["warning"]["ranks"] = "all";
      expect(std::move(said), "FP-SUMMON-10");
    }
    if (aside.value) left.push_back("gradients");
    observe(left, "left");
  }

  void make_optimizer(const std::string& as) {
    optimizer_ = as;
    Json optimizer = {{"as", as}, {"kind", "SGD"}, {"lr", sketch_.lr}};
    if (sketch_.weight_decay != 0) optimizer["weight_decay"] = sketch_.weight_decay;
    if (sketch_.momentum != 0) optimizer["momentum"] = sketch_.momentum;
    step({{"optimizer", optimizer}});
  }

  // Controls stay as they were set, so only changes are written.
  void controls(const MicroBatch& now) {
    const auto control = [&](const char* verb, bool before, bool after) {
      if (before != after) step({{verb, after}});
    };
    if (fsdp1_) return;
    control("set_requires_gradient_sync", was_.sync, now.sync);
    if (was_.sync != now.sync) was_.all_reduce = now.sync;  // it speaks of both
    control("set_reshard_after_backward", was_.reshard_after_backward, now.reshard_after_backward);
    control("set_is_last_backward", was_.last_backward, now.last_backward);
    control("set_requires_all_reduce", was_.all_reduce, now.all_reduce);
    was_ = now;
  }

  void zero_grad(const Iteration& iteration) {
    if (iteration.zero_grad == ZeroGrad::keep) return;
    step(
        {{"zero_grad", {{"optimizer", optimizer_}, {"set_to_none", iteration.zero_grad == ZeroGrad::none}}}});
  }

  // Where gradients of an earlier iteration are still there, it is given.
  void train(int pass, bool inside_no_sync, const MicroBatch& micro_batch, const Iteration* late) {
    const bool input_gradient = micro_batch.input_gradient;
    std::string before = std::move(steps_);
    steps_.clear();
    const std::string number = std::to_string(pass);
    if (input_gradient) step({{"leaf", {{"input", "x." + number}, {"into", "asked"}}}});
    step(forward(inputs(input_gradient ? "asked" : "x." + number, pass)));
    const std::string cotangent = micro_batch.loud ? "loud." : "cotangent.";
    if (has_side(sketch_)) step(mixed(micro_batch.uses));
    step(loss(cotangent + number));
    if (micro_batch.loud)
      add_input("loud",
                fmt::format("{{shape: [{}, {}]{}, unit: {}, per_rank: true, per_iteration: {}}}",
                            sketch_.rows, out_width(), in_dtype(), 4096 * cotangent_unit(), passes()));
    if (sketch_.scale != 0) step({{"scale_loss", "loss"}});
    if (micro_batch.looked_at) observe({"parameters", "registered_parameters"}, "between");
    if (late) zero_grad(*late);
    step({{"backward", sketch_.scale != 0 ? "scaled" : "loss"}});
    if (input_gradient) step({{"take_gradient", {{"of", "asked"}, {"into", "of_input"}}}});
    const std::string inside = "  - within: {scope: no_sync}\n    do:\n";
    if (micro_batch.nested) steps_ = inside + "      - delay: 0\n" + steps_;
    if (inside_no_sync) steps_ = inside + indented(steps_);
    if (micro_batch.eval) {
      before += entry({{"mode", "eval"}});
      step({{"mode", "train"}});
    }
    steps_ = before + steps_;
  }

  std::vector<Json> casts(const std::string& model) const {
    std::vector<Json> casts;
    if (sketch_.dtype != "float32") casts.push_back({{"cast", {{"dtype", sketch_.dtype}, {"model", model}}}});
    for (const ParameterAt& each : sketch_.halves)
      casts.push_back(
          {{"cast", {{"dtype", "bfloat16"}, {"match", pattern_of(sketch_, each)}, {"model", model}}}});
    return casts;
  }

  void program() {
    if (has_side(sketch_))
      for (const char* each : {"both", "main", "side"}) step({{"build", each}});
    step({{"build", sketch_.meta ? Json{{"model", "model"}, {"device", "meta"}} : Json("model")}});
    for (const ParameterAt& each : sketch_.frozen)
      step({{"set_requires_grad", {{"value", false}, {"match", pattern_of(sketch_, each)}}}});
    for (const Json& each : casts("model"))
      if (!sketch_.cast_late) step(each);
    step({{"shard", "model"}});
    if (sketch_.cast_late) step(casts("model").front());
    if (sketch_.meta && !fsdp1_) step({{"materialize", "model"}});
    observe({"units", "warnings", "registered_parameters", "parameters"}, "sharded");
    make_optimizer("optimizer");
    controls_of_all();
    int pass = 0;
    for (const Iteration& iteration : sketch_.iterations) {
      if (&iteration != &sketch_.iterations.front() && sketch_.prefetch == Prefetch::listed_anew)
        prefetch_lists(1);
      bool first = true;
      for (const MicroBatch& each : iteration.micro_batches) {
        for (const Aside& one : each.before) aside(one);
        if (first && !iteration.late) zero_grad(iteration);
        controls(each);
        train(pass, fsdp1_ && !each.sync, each, first && iteration.late ? &iteration : nullptr);
        first = false;
        Json what = {"loss", "output", "trace"};
        if (each.input_gradient) what.push_back("register:of_input");
        if (has_side(sketch_)) what.push_back("register:beside");
        if (sketch_.scale != 0 && keeps_scaled_dtype()) what.push_back("register:scaled");
        // A unit that stays whole shows its whole parameters and what waits with them, not what is reduced.
        if (each.reshard_after_backward || !each.sync) what.push_back("gradients");
        observe(what, "pass" + std::to_string(pass));
        ++pass;
      }
      for (const Aside& one : iteration.before_step) aside(one);
      finish(iteration);
    }
    // A dict is what was saved, whatever has been trained since.
    if (!kept_.empty()) observe(kept_, "end");
    observe({"training_state", "registered_parameters", "warnings"}, "end");
    if (has_block(sketch_, BlockKind::shift)) observe({"buffers"}, "end");
    if (counts_hooks()) observe({"counters"}, "end");
    if (sketch_.offload) observe({"devices"}, "end");
  }

  // What is done with the gradients of an iteration.
  void finish(const Iteration& iteration) {
    if (iteration.unscale) {
      step({{"unscale", "scaler"}});
      observe({"gradients"}, "unscaled");
    }
    if (iteration.clip != Clip::none) clip(iteration.clip);
    if (!iteration.overflow.empty()) {
      const ParameterAt at = parameters_of(sketch_).front().at;
      const std::string name = "not_finite_" + iteration.overflow;
      add_input(name, fmt::format("{{shape: {}{}, kind: full, value: {}}}", flow(Json(shape_of(sketch_, at))),
                                  in_dtype(), iteration.overflow));
      step({{"mutate", {{"parameter", name_of(sketch_, at)}, {"what", "grad"}, {"from", name}}}});
    }
    if (sketch_.scale != 0) {
      step({{"scaler_step", "scaler"}});
      step({{"update_scale", "scaler"}});
      observe({"register:scale"}, "scaled");
    } else if (iteration.step) {
      step({{"step", optimizer_}});
    }
    observe({"parameters", "full_parameters"}, "stepped");
  }

  // What units and the model are told once, before they train.
  void controls_of_all() {
    for (const Unit& unit : sketch_.units) {
      const std::string path = path_of(sketch_, unit.modules.front());
      if (unit.divide_factor != 0)
        step({{"set_gradient_divide_factor", {{"value", unit.divide_factor}, {"module", path}}}});
      if (!unit.unshard_in_backward)
        step({{"set_unshard_in_backward", {{"value", false}, {"module", path}}}});
      if (unit.hook != 0) {
        Json hook = {{"module", path}, {"scale", unit.hook}};
        // A number that every division of the sum leaves exact; not where the scaler makes it a small fraction, nor for
        // each of the reductions of a unit that runs more than once.
        const bool once = std::all_of(unit.modules.begin(), unit.modules.end(),
                                      [&](const ModuleAt& module) { return runs_of(sketch_, module) == 1; });
        if (sketch_.scale == 0 && once) hook["add"] = sketch_.world;
        step({{"set_all_reduce_hook", hook}});
      }
      if (unit.force_sum) step({{"set_force_sum_reduction_for_comms", {{"value", true}, {"module", path}}}});
    }
    if (sketch_.async_gathers) step({{"set_unshard_async_op", true}});
    if (sketch_.comm_hook != 0)
      step({{"register_comm_hook", {{"model", "model"}, {"scale", sketch_.comm_hook}}}});
    if (sketch_.scale != 0)
      step({{"scaler", {{"optimizer", optimizer_}, {"init_scale", sketch_.scale}, {"growth_interval", 1}}}});
    if (sketch_.step_in_backward) step({{"step_in_backward", optimizer_}});
    if (sketch_.prefetch != Prefetch::by_itself) prefetch_lists(2);
  }

  // Each layer names those that come next in its pass.
  void prefetch_lists(std::size_t ahead) {
    const std::vector<std::string> layers = chain_of_layers(sketch_);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Json next = Json::array(), last = Json::array();
      for (std::size_t k = 1; k <= ahead; ++k) {
        if (i + k < layers.size()) next.push_back(layers[i + k]);
        if (k <= i) last.push_back(layers[i - k]);
      }
      step({{"set_forward_prefetch", {{"module", layers[i]}, {"targets", next}}}});
      step({{"set_backward_prefetch", {{"module", layers[i]}, {"targets", last}}}});
    }
  }

  // FSDP1's own scaler does. torch.amp.GradScaler, to which FSDP2 leaves it, makes float32 of a loss in a smaller dtype.
  bool keeps_scaled_dtype() const {
    return fsdp1_ || (!has_small_dtype(sketch_) &&
                      std::none_of(sketch_.units.begin(), sketch_.units.end(), computes_in));
  }

  // FP-HOOK-2 speaks of units that run once in each forward with gradients; frozen ones have other hooks.
  bool counts_hooks() const {
    if (sketch_.step_in_backward) return true;
    if (sketch_.api != "fsdp" || !sketch_.auto_wrap.is_null() || !sketch_.frozen.empty()) return false;
    return !has_block(sketch_, BlockKind::twice) && !leaves_layers_out(sketch_) && !recomputes(sketch_) &&
           !has_aside(sketch_, AsideKind::set_requires_grad) &&
           !has_aside(sketch_, AsideKind::failed_backward) && !has_aside(sketch_, AsideKind::failed_forward);
  }

  void expect(Json expectation, const char* clause) {
    expectation["clause"] = clause;
    clauses_.insert(clause);
    expect_ += entry(expectation);
  }

  void equal(const Json& what, const char* clause) {
    expect({{"equal", {{"what", what}, {"to", {"reference"}}, {"tolerance", "exact"}}}}, clause);
  }

  void expectations() {
    Json state = Json::array();
    for (const std::string& each : observed_)
      if (each.starts_with("state_dict:")) state.push_back(each);
    const auto equal_where_observed = [&](const char* what, const char* of_flat, const char* of_fully_shard) {
      if (observed_.contains(what)) equal({what}, fsdp1_ ? of_flat : of_fully_shard);
    };
    equal({"loss", "output"}, fsdp1_ ? "FP-MP-3" : "FS-MP-1");
    if (!sketch_.step_in_backward) equal_where_observed("gradients", "FP-RED-2", "FS-RED-2");
    equal({"parameters", "full_parameters"}, fsdp1_ ? "FP-SUMMON-1" : "FS-STATE-1");
    equal_where_observed("register:probe", "FP-MP-3", "FS-MP-1");
    equal_where_observed("register:norm", "FP-CLIP-1", "FS-CLIP-1");
    equal_where_observed("register:scaled", "FP-SCALER-1", "FS-SCALER-1");
    equal_where_observed("register:scale", "FP-SCALER-1", "FS-SCALER-1");
    equal_where_observed("register:of_input", "FP-INPUT-1", "FS-INPUT-1");
    equal_where_observed("buffers", "FP-MP-9", "FS-MP-8");
    if (!state.empty()) equal(state, fsdp1_ ? "FP-STATE-1" : "FS-STATE-1");
    expect({{"equal", {{"what", {"units"}}, {"to", {"reference"}}}}}, fsdp1_ ? "WR-4" : "FS-GATHER-1");
    if (sketch_.world > 1)
      expect({{"layout", {{"kind", fsdp1_ ? "flat" : "chunk_dim0"}, {"sharded", true}}}},
             fsdp1_ ? "FP-FLAT-1" : "FS-SHARD-1");
    expect({{"training_state", "idle"}}, "G-5");
    for (const Attempt& each : attempts_)
      expect({{"error",
               {{"attempt", each.name}, {"type", each.type}, {"message", each.message}, {"ranks", "all"}}}},
             each.clause);
    for (const std::string& each : first_rank_states_) entries_of_first_rank(each);
    if (sketch_.offload) expect({{"devices", "cpu"}}, fsdp1_ ? "FP-OFF-1" : "FS-OFF-1");
    warnings();
    registered();
    hooks();
    collectives();
    orders();
  }

  void entries_of_first_rank(const std::string& state) {
    int entries = static_cast<int>(parameters_of(sketch_).size());
    for (const Block& block : sketch_.blocks)  // buffers, and other names of what is there
      entries += block.kind == BlockKind::shift || block.kind == BlockKind::tied ? 1 : 0;
    Json others = Json::array();
    for (int rank = 1; rank < sketch_.world; ++rank) others.push_back(rank);
    const char* clause = fsdp1_ ? "FP-STATE-12" : "FS-STATE-8";
    expect({{"devices", {{"of", state}, {"is", "cpu"}, {"count", entries}, {"ranks", {0}}}}}, clause);
    if (!others.empty())
      expect({{"devices", {{"of", state}, {"is", "cpu"}, {"count", 0}, {"ranks", others}}}}, clause);
  }

  // What is said while the model is sharded.
  void says(bool warned, const std::string& message, const char* clause) {
    Json expectation = warned ? Json{{"warning", {{"message", message}, {"ranks", "all"}}}}
                              : Json{{"no_warning", {{"message", message}}}};
    expectation["label"] = "sharded";
    expect(expectation, clause);
  }

  void warnings() {
    const auto any = [&](auto&& unit_says) {
      return std::any_of(sketch_.units.begin(), sketch_.units.end(), unit_says);
    };
    if (!fsdp1_)
      return says(
          any([](const Unit& unit) { return unit.settings.value("reshard_after_forward", Json()) == 1; }),
          "means resharding parameters to world size 1", "FS-RESHARD-7");
    const auto is_whole = [](const Unit& unit) {
      return unit.settings.value("sharding_strategy", "") == "NO_SHARD";
    };
    const bool alone = sketch_.world == 1;
    classes_in_full_precision();
    frozen_among_trained();
    shards_of_whole_units(alone, any(is_whole));
    if (sketch_.order_checked) expect({{"no_warning", {{"message", "Forward order differs"}}}}, "FP-ORDER-1");
    says(any(is_whole) && !alone, "NO_SHARD.*deprecated", "FP-INIT-5");
    // A policy may give some modules another strategy.
    if (sketch_.auto_wrap.is_null())
      says(alone && any([&](const Unit& unit) { return !is_whole(unit); }), "FSDP is switching to use",
           "FP-FLAT-5");
  }

  void classes_in_full_precision() {
    if (sketch_.auto_wrap.is_null()) return;
    const std::vector<ModuleAt> modules = unit_candidates(sketch_);
    for (const std::string each : exact_classes(sketch_)) {
      const bool has_one = std::any_of(modules.begin(), modules.end(), [&](const ModuleAt& at) {
        return !at.is_root() && class_of(sketch_, at) == each;
      });
      says(has_one, "submodules of type:\n\\{.*" + each + ".*\\}\nThese modules", "FP-MP-11");
    }
  }

  // Units of a policy object are asked; those of a function are not, and the root is the caller's.
  void frozen_among_trained() {
    if (sketch_.auto_wrap.is_null() || sketch_.frozen.empty() || !sketch_.ignored.empty() ||
        !exact_classes(sketch_).empty())
      return;
    const std::string policy = sketch_.auto_wrap.at("policy");
    if (policy == "custom") return;
    const bool mixed = policy == "module_wrap" && mixes_frozen(sketch_.auto_wrap.at("classes").front());
    says(mixed, "has both parameters with requires_grad=True and False", mixed ? "WR-6" : "WR-7");
  }

  // Whether a module of the class owns frozen parameters and trained ones: those that no other of the class further inside owns.
  bool mixes_frozen(const std::string& layer) const {
    std::map<ModuleAt, std::set<bool>> owned;
    for (const ParameterInfo& each : parameters_of(sketch_)) {
      for (ModuleAt at : {each.at.module, ModuleAt{each.at.module.block, -1}}) {
        if (at.is_root() || class_of(sketch_, at) != layer) continue;
        owned[at].insert(is_frozen(sketch_, each.at));
        break;
      }
    }
    return std::any_of(owned.begin(), owned.end(), [](const auto& each) { return each.second.size() > 1; });
  }

  void shards_of_whole_units(bool alone, bool any_whole) {
    if (!has_aside(sketch_, AsideKind::sharded_state) || !sketch_.auto_wrap.is_null()) return;
    const std::vector<ParameterInfo> all = parameters_of(sketch_);
    const bool has_some = std::any_of(all.begin(), all.end(), [&](const ParameterInfo& each) {
      const int unit = unit_of(sketch_, each.at);
      return unit >= 0 && !is_sharded(sketch_, sketch_.units[unit]);
    });
    if (!has_some && (alone || any_whole)) return;  // has a unit without parameters anything to say?
    Json expectation = {
        {has_some ? "warning" : "no_warning", {{"message", "full_state_dict will be returned"}}},
        {"label", "saved_shards"}};
    if (has_some) expectation["warning"]["ranks"] = "all";
    expect(expectation, "FP-STATE-4");
  }

  // How many parameters modules hold where `is_flat` says which units show one each; nothing where a policy alone knows.
  std::optional<int> count_registered(const std::function<bool(const Unit&)>& is_flat) const {
    std::set<int> flat;
    int count = 0;
    for (const ParameterInfo& each : parameters_of(sketch_)) {
      const int unit = unit_of(sketch_, each.at);
      if (unit >= 0 && is_flat(sketch_.units[unit]))
        flat.insert(unit);
      else
        ++count;
    }
    if (!flat.empty() && !sketch_.auto_wrap.is_null()) return std::nullopt;
    return count + static_cast<int>(flat.size());
  }

  bool is_flat(const Unit& unit) const { return fsdp1_ && !original_parameters(sketch_, unit); }

  // Inside of a scope over a module, whose units have their parameters whole under names of their own.
  std::optional<int> registered_within(const ModuleAt& module, bool recurse) const {
    if (is_flat(sketch_.units.back()) && !recurse && !sketch_.auto_wrap.is_null()) return std::nullopt;
    return count_registered([&](const Unit& unit) {
      const ModuleAt& own = unit.modules.front();
      return is_flat(unit) && !(recurse ? holds(module, own) : own == module);
    });
  }

  // What an optimizer is handed, too.
  void registered() {
    const auto count = count_registered([&](const Unit& unit) { return is_flat(unit); });
    const Json arguments = count ? Json{{"count", *count}} : Json::object();
    const char* clause = fsdp1_ ? "FP-FLAT-1" : "FS-SHARD-3";
    for (const std::string& label : registered_at_)
      expect({{"registered_parameters", arguments}, {"label", label}}, clause);
    for (const auto& [scope, number] : registered_in_scopes_)
      expect({{"registered_parameters", {{"count", number}}}, {"label", scope}}, "FP-SUMMON-1");
  }

  void hooks() {
    if (!counts_hooks()) return;
    int passes = 0, reductions = 0;
    for (const Iteration& iteration : sketch_.iterations)
      for (const MicroBatch& each : iteration.micro_batches) {
        ++passes;
        reductions += each.sync ? 1 : 0;
      }
    const std::vector<ParameterInfo> parameters = parameters_of(sketch_);
    if (sketch_.step_in_backward)
      return expect({{"counters", {{"gradient_hooks", reductions * static_cast<int>(parameters.size())}}}},
                    "FS-HOOK-1");
    std::set<int> owners;
    for (const ParameterInfo& each : parameters) owners.insert(unit_of(sketch_, each.at));
    owners.erase(-1);
    expect({{"counters",
             {{"pre_backward_registrations", passes * static_cast<int>(sketch_.units.size())},
              {"post_backward_registrations", passes * static_cast<int>(owners.size())}}}},
           "FP-HOOK-2");
  }

  void resume() {
    if (!sketch_.resumed) return;
    const bool flat = sketch_.resumed->api != "fully_shard", state = has_optimizer_state(sketch_);
    const auto in_stage = [&](int stage, Json verb) {
      verb["when"] = fmt::format("stage == {}", stage);
      step(std::move(verb));
    };
    Json saved = {{"format", sketch_.resumed->format}}, loaded = saved;
    loaded.update({{"model", "resumed"}, {"like", "model"}});
    if (state) {
      saved["optimizer"] = optimizer_;
      loaded.update({{"optimizer", "resumed_optimizer"}, {"optimizer_like", optimizer_}});
    }
    if (!sketch_.resumed->over.empty()) {
      Json older = saved;
      older["format"] = sketch_.resumed->over;
      in_stage(1, {{"save_checkpoint", older}});
    }
    in_stage(1, {{"save_checkpoint", saved}});
    in_stage(2, {{"build", "resumed"}});
    for (const ParameterAt& each : sketch_.frozen)
      in_stage(2, {{"set_requires_grad",
                    {{"value", false}, {"match", pattern_of(sketch_, each)}, {"model", "resumed"}}}});
    for (const Json& each : casts("resumed")) in_stage(2, each);
    in_stage(2, {{"shard", "resumed"}});
    in_stage(2, {{"optimizer",
                  {{"as", "resumed_optimizer"},
                   {"model", "resumed"},
                   {"kind", "SGD"},
                   {"lr", sketch_.lr},
                   {"momentum", sketch_.momentum}}}});
    in_stage(2, {{"load_checkpoint", loaded}});
    Json what = {"full_parameters"};
    if (has_block(sketch_, BlockKind::shift)) what.push_back("buffers");
    if (state) what.push_back("optimizer_state");
    in_stage(2, {{"observe", {{"what", what}, {"model", "resumed"}}}, {"label", "resumed"}});
    for (const Json& each : what) {
      const bool of_optimizer = each == "optimizer_state";
      expect({{"equal", {{"what", {each}}, {"to", {"reference"}}, {"tolerance", "exact"}}},
              {"label", "resumed"},
              {"when", "stage == 2"}},
             of_optimizer ? (flat ? "FP-CKPT-2" : "FS-CKPT-2") : (flat ? "FP-CKPT-1" : "FS-CKPT-1"));
    }
  }

  void refusals() {
    for (std::size_t i = 0; i < sketch_.refusals.size(); ++i) {
      const RefusalText text = refusal_text(sketch_.refusals[i], sketch_, static_cast<int>(i));
      other_models_ += text.models;
      refused_plans_ += text.plans;
      steps_ += text.steps;
      expect_ += text.expectations;
      clauses_.insert(text.clauses.begin(), text.clauses.end());
    }
    if (!sketch_.refusals.empty()) add_input("narrow", "{shape: [2, 4]}");
  }

  // The dtype that all units have for a purpose, or nothing.
  std::optional<std::string> common_dtype(const char* key) const {
    std::optional<std::string> common;
    if (!sketch_.halves.empty()) return std::nullopt;
    for (const Unit& unit : sketch_.units) {
      const Json policy = unit.settings.value("mixed_precision", Json());
      std::string dtype = sketch_.dtype;
      if (policy.is_object()) {
        dtype = policy.value("param_dtype", dtype);
        if (std::string(key) == "reduce_dtype") dtype = policy.value("reduce_dtype", dtype);
      }
      if (common && *common != dtype) return std::nullopt;
      common = dtype;
    }
    return common;
  }

  void order(const std::string& label, const char* phase, std::array<std::string, 2> first,
             std::array<std::string, 2> then, const char* clause) {
    expect({{"order",
             {{"phase", phase},
              {"first", {{"op", first[0]}, {"unit", first[1]}}},
              {"then", {{"op", then[0]}, {"unit", then[1]}}}}},
            {"label", label}},
           clause);
  }

  // Where the units are layers that run one after another, each freed after its forward and each trained:
  // what is issued before what.
  void orders() {
    const std::vector<std::string> layers = chain_of_layers(sketch_);
    if (layers.size() < 2 || sketch_.comm_hook != 0) return;  // a hook does not say which unit it reduces for
    int pass = 0;
    for (const Iteration& iteration : sketch_.iterations)
      for (const MicroBatch& each : iteration.micro_batches) {
        const bool first = &iteration == &sketch_.iterations.front();
        if (each.sync) orders_of("pass" + std::to_string(pass), layers, pass == 0, first);
        ++pass;
      }
  }

  void orders_of(const std::string& label, const std::vector<std::string>& layers, bool first_pass,
                 bool first_iteration) {
    const bool listed = sketch_.prefetch != Prefetch::by_itself;
    const bool two_ahead = sketch_.prefetch == Prefetch::listed || (listed && first_iteration);
    for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
      const std::string &unit = layers[i], &next = layers[i + 1];
      if (!fsdp1_) {
        order(label, "backward", {"reduce_scatter", next}, {"reduce_scatter", unit}, "FS-RED-5");
        const char* in_backward = listed ? "FS-PREFETCH-4" : "FS-PREFETCH-1";
        order(label, "backward", {"all_gather", unit}, {"compute", next}, in_backward);
        if (listed)
          order(label, "forward", {"all_gather", next}, {"compute", unit}, "FS-PREFETCH-3");
        else
          order(label, "forward", {"compute", unit}, {"all_gather", next}, "FS-PREFETCH-3");
        if (i + 2 >= layers.size()) continue;
        const std::string& far = layers[i + 2];
        if (two_ahead) {
          order(label, "forward", {"all_gather", far}, {"compute", unit}, "FS-PREFETCH-3");
          order(label, "backward", {"all_gather", unit}, {"compute", far}, "FS-PREFETCH-4");
          continue;
        }
        order(label, "forward", {"compute", unit}, {"all_gather", far}, "FS-PREFETCH-3");
        order(label, "backward", {"compute", far}, {"all_gather", unit}, in_backward);
        order(label, "backward", {"reduce_scatter", far}, {"all_gather", unit}, "FS-RED-5");
        continue;
      }
      const Json& settings = sketch_.units.back().settings;
      const Json prefetch = settings.value("backward_prefetch", Json("BACKWARD_PRE"));
      const bool forward_prefetch = settings.value("forward_prefetch", false);
      if (i + 2 < layers.size()) {  // one ahead at most
        order(label, "backward", {"compute", layers[i + 2]}, {"all_gather", unit}, "FP-GATHER-4");
        order(label, "forward", {"compute", unit}, {"all_gather", layers[i + 2]}, "FP-GATHER-5");
      }
      if (!prefetch.is_null()) {
        order(label, "backward", {"all_gather", unit}, {"reduce_scatter", next}, "FP-GATHER-3");
        if (prefetch == "BACKWARD_PRE")
          order(label, "backward", {"all_gather", unit}, {"compute", next}, "FP-GATHER-4");
        else
          order(label, "backward", {"compute", next}, {"all_gather", unit}, "FP-GATHER-4");
      } else if (!forward_prefetch) {
        order(label, "backward", {"reduce_scatter", next}, {"all_gather", unit}, "FP-GATHER-3");
      }
      if (!forward_prefetch)
        order(label, "forward", {"compute", unit}, {"all_gather", next}, "FP-GATHER-5");
      else if (!first_pass)
        order(label, "forward", {"all_gather", next}, {"compute", unit}, "FP-GATHER-5");
    }
  }

  void collectives() {
    std::vector<bool> in_full;
    for (const Iteration& iteration : sketch_.iterations)
      for (const MicroBatch& each : iteration.micro_batches)
        in_full.push_back(sketch_.full_precision_in_eval && each.eval);
    int pass = 0, aside = 0;
    for (const CollectiveCounts& counts : count_collectives(sketch_)) {
      const auto dtype_of = [&](const char* key) {
        return in_full.at(pass) ? std::optional<std::string>("float32") : common_dtype(key);
      };
      const auto gathered = dtype_of("param_dtype"), reduced = dtype_of("reduce_dtype");
      for (const std::optional<int>& number : counts.gathers_aside) {
        Json arguments = {{"op", "all_gather"}, {"phase", "forward"}};
        arguments[number ? "count" : "at_least"] = number.value_or(0);
        expect({{"collectives", arguments}, {"label", "aside" + std::to_string(aside++)}},
               fsdp1_ ? "FP-GATHER-1" : "FS-GATHER-1");
      }
      const std::string label = "pass" + std::to_string(pass++);
      const auto count = [&](const char* op, const char* phase, std::optional<int> number, const char* clause,
                             const std::optional<std::string>& dtype) {
        if (!number) return;
        Json arguments = {{"op", op}, {"phase", phase}, {"count", *number}};
        if (dtype && *number > 0) arguments["dtype"] = *dtype;
        if (*number > 0 && std::string_view(op) != "all_gather" && sums_alone())
          arguments["reduce_op"] = "sum";
        expect({{"collectives", arguments}, {"label", label}}, clause);
      };
      count("all_gather", "forward", counts.gathers_in_forward, fsdp1_ ? "FP-GATHER-1" : "FS-GATHER-1",
            gathered);
      count("all_reduce", "forward", 0, fsdp1_ ? "FP-GATHER-1" : "FS-GATHER-1", std::nullopt);
      count("all_gather", "backward", counts.gathers_in_backward, fsdp1_ ? "FP-GATHER-1" : "FS-RESHARD-1",
            gathered);
      count("reduce_scatter", "backward", counts.reduce_scatters, fsdp1_ ? "FP-RED-1" : "FS-RED-1", reduced);
      count("all_reduce", "backward", counts.all_reduces, fsdp1_ ? "FP-RED-1" : "FS-RED-1", std::nullopt);
    }
  }

  bool sums_alone() const {
    return std::all_of(sketch_.units.begin(), sketch_.units.end(),
                       [](const Unit& unit) { return unit.force_sum; });
  }

  const Sketch& sketch_;
  const bool fsdp1_;
  MicroBatch was_;
  int states_ = 0, probes_ = 0;
  std::string optimizer_;
  struct Attempt {
    std::string name;
    const char *type, *message, *clause;  // of the error
  };
  std::vector<Attempt> attempts_;
  Json kept_ = Json::array();  // dicts that are looked at again
  std::vector<std::string> first_rank_states_, other_inputs_;
  std::set<std::string> registered_at_;  // labels outside of scopes
  std::vector<std::pair<std::string, int>> registered_in_scopes_;
  std::string other_models_, refused_plans_;
  std::vector<std::pair<std::string, Json>> patches_;
  std::set<std::string> observed_, clauses_;
  std::string steps_, expect_, text_;
};

}  // namespace

std::string scenario_id(const Origin& origin) {
  return fmt::format("DRAWN/Seed{}/number_{}", origin.seed, origin.index);
}

std::string scenario_text(const Sketch& sketch, const Origin& origin, const std::string& why) {
  return Writer(sketch, origin, why).text();
}

}  // namespace fsdp_cts::generate
