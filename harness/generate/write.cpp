#include "harness/generate/write.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "harness/generate/counts.hpp"

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
    const std::string model = flow(root());
    program();
    expectations();
    text_ = fmt::format("id: {}\n", scenario_id(origin));
    text_ += fmt::format("source: {{own: \"drawn: fsdp-cts generate --seed {} --index {}\"}}\n", origin.seed,
                         origin.index);
    text_ += fmt::format("clauses: {}\nwhy: >-\n  {}\n", flow(Json(clauses_)), why);
    text_ += fmt::format("worlds: [{}]\nlane: exact\nmodels:\n  model: {}\n", sketch.world, model);
    text_ += data();
    text_ += plan();
    text_ += "program:\n" + steps_ + "expect:\n" + expect_;
    text_ += "minimum: {elements: 1, tensors: 1}\n";
  }

  std::string text() { return std::move(text_); }

 private:
  Json linear(int in, int out, bool bias) const {
    return {{"type", "Linear"}, {"in", in}, {"out", out}, {"bias", bias}};
  }

  static Json graph(Json children, Json forward, const char* output = "y") {
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

  Json module_of(const Block& block, int in) const {
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
        return graph({{"inner", linear(in, in, block.bias)}},
                     {call("inner", "x", "h"), {{"add", {"x", "h"}}, {"to", "y"}}});
      case BlockKind::twice:
        return graph({{"inner", linear(in, in, block.bias)}},
                     {call("inner", "x", "h"), call("inner", "h", "y")});
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
    }
    return nullptr;
  }

  Json root() const {
    Json children = Json::array();
    for (std::size_t i = 0; i < sketch_.blocks.size(); ++i)
      children.push_back(module_of(sketch_.blocks[i], width_before(sketch_, i)));
    if (!sketch_.root_gain) return {{"type", "Sequential"}, {"children", children}};
    Json named = Json::object(), forward = Json::array();
    std::string from = "x";
    for (std::size_t i = 0; i < children.size(); ++i) {
      const std::string name = std::to_string(i), to = "h" + name;
      named[name] = children[i];
      forward.push_back({{"call", name}, {"args", {from}}, {"to", to}});
      from = to;
    }
    Json module = graph(named, forward);
    multiply_by_gain(module, from, out_width());
    return module;
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
    std::string text = fmt::format(
        "data:\n  seed: {}\n  formula: dyadic\n  levels: 1\n  unit: 1\n  inputs:\n", sketch_.data_seed);
    text += fmt::format("    x: {{shape: [{}, {}], dtype: {}, per_rank: true, per_iteration: {}}}\n",
                        sketch_.rows, sketch_.in, sketch_.x_dtype, passes());
    text += fmt::format("    cotangent: {{shape: [{}, {}], unit: {}, per_rank: true, per_iteration: {}}}\n",
                        sketch_.rows, out_width(), cotangent_unit(), passes());
    for (const auto& [name, shape] : patches_)
      text += fmt::format("    {}: {{shape: {}}}\n", name, flow(shape));
    return text;
  }

  std::string plan() const {
    std::string text = fmt::format("plans:\n  model:\n    api: {}\n", sketch_.api);
    if (!sketch_.mesh.empty()) text += fmt::format("    mesh: {}\n", flow(Json(sketch_.mesh)));
    text += "    units:\n";
    Json ignored = Json::object();
    for (const ParameterAt& pattern : sketch_.ignored) {
      // FSDP1 takes modules as well, and policies leave them alone.
      if (fsdp1_ && pattern.name.empty() && !pattern.module.is_root() && !has_unit_in(pattern.module)) {
        ignored["ignored_modules"].push_back(path_of(sketch_, pattern.module));
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
      if (!sketch_.auto_wrap.is_null()) written["auto_wrap"] = sketch_.auto_wrap;
      text += "      - " + flow(written) + "\n";
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
    for (const Json& each : what) observed_.insert(each.get<std::string>());
    step({{"observe", what}, {"label", label}});
  }

  Json shape_of(const ParameterAt& at) const {
    const Block* block = at.module.is_root() ? nullptr : &sketch_.blocks[at.module.block];
    const int before = block ? width_before(sketch_, at.module.block) : 0;
    if (at.name == "gain") return Json::array({block ? before : out_width()});
    int in = before, out = before;
    if (block->kind == BlockKind::linear || block->kind == BlockKind::spare) out = block->width;
    if (block->kind == BlockKind::nested) {
      in = at.module.inner == 0 ? before : block->middle;
      out = at.module.inner == 0 ? block->middle : block->width;
    }
    return at.name == "bias" ? Json::array({out}) : Json::array({out, in});
  }

  // Under a label of its own, so that its gathers are counted apart from those of training.
  void forward_only() {
    step({{"forward", {{"input", "x.0"}, {"output", "probe"}, {"grad", false}}}});
    observe({"register:probe", "trace"}, "aside" + std::to_string(probes_++));
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
      case AsideKind::unshard:
        return step({{"unshard", path}});
      case AsideKind::unshard_and_reshard:
        step({{"unshard", path}});
        return step({{"reshard", path}});
      case AsideKind::summon_mutate: {
        const std::string patch = fmt::format("patch{}", patches_.size());
        patches_.emplace_back(patch, shape_of(aside.at));
        steps_ += "  - within: {scope: summon, writeback: true}\n    do:\n";
        steps_ += fmt::format("      - mutate: {{parameter: {}, from: {}}}\n",
                              word(name_of(sketch_, aside.at)), patch);
        return observe({"parameters"}, "mutated");
      }
      case AsideKind::replace:
        return step({{"mutate", {{"parameter", name_of(sketch_, aside.at)}, {"how", "data"}, {"fill", 2}}}});
      case AsideKind::full_state:
      case AsideKind::sharded_state: {
        const bool full = aside.kind == AsideKind::full_state;
        const std::string as = fmt::format("saved{}", states_++);
        step({{"state_dict", {{"as", as}, {"kind", full ? "full" : "sharded"}}}});
        observe({"state_dict:" + as}, "saved");
        // A sharded state dict may be the shards themselves.
        if (full) step({{"zero_parameters", "model"}});
        step({{"load_state_dict", as}});
        return observe({"parameters"}, "loaded");
      }
      case AsideKind::set_requires_grad:
        return step(
            {{"set_requires_grad", {{"value", aside.value}, {"match", pattern_of(sketch_, aside.at)}}}});
      case AsideKind::set_reshard_after_forward:
        return step({{"set_reshard_after_forward", {{"value", aside.value}, {"module", path}}}});
    }
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

  void train(int pass, bool inside_no_sync) {
    std::string before = std::move(steps_);
    steps_.clear();
    const std::string number = std::to_string(pass);
    step({{"forward", "x." + number}});
    step({{"loss", {{"kind", "dot"}, {"with", "cotangent." + number}}}});
    step({{"backward", "loss"}});
    if (inside_no_sync) {
      std::string inner;
      for (std::size_t at = 0; at < steps_.size();) {
        const std::size_t end = steps_.find('\n', at) + 1;
        inner += "    " + steps_.substr(at, end - at);
        at = end;
      }
      steps_ = "  - within: {scope: no_sync}\n    do:\n" + inner;
    }
    steps_ = before + steps_;
  }

  void program() {
    step({{"build", "model"}});
    for (const ParameterAt& each : sketch_.frozen)
      step({{"set_requires_grad", {{"value", false}, {"match", pattern_of(sketch_, each)}}}});
    step({{"shard", "model"}});
    observe({"units"}, "sharded");
    Json optimizer = {{"kind", "SGD"}, {"lr", sketch_.lr}};
    if (sketch_.momentum != 0) optimizer["momentum"] = sketch_.momentum;
    step({{"optimizer", optimizer}});
    int pass = 0;
    for (const Iteration& iteration : sketch_.iterations) {
      bool first = true;
      for (const MicroBatch& each : iteration.micro_batches) {
        for (const Aside& one : each.before) aside(one);
        if (first && iteration.zero_grad != ZeroGrad::keep)
          step({{"zero_grad",
                 {{"optimizer", "optimizer"}, {"set_to_none", iteration.zero_grad == ZeroGrad::none}}}});
        first = false;
        controls(each);
        train(pass, fsdp1_ && !each.sync);
        Json what = {"loss", "output", "trace"};
        // A unit that stays whole shows its whole parameters and what they have gathered, not its shards'.
        if (each.reshard_after_backward) what.push_back("gradients");
        observe(what, "pass" + std::to_string(pass));
        ++pass;
      }
      if (iteration.clip) {
        step({{"clip_grad_norm", {{"max_norm", 1048576}, {"norm_type", 1}, {"into", "norm"}}}});
        observe({"gradients", "register:norm"}, "clipped");
      }
      if (iteration.step) step({{"step", "optimizer"}});
      observe({"parameters", "full_parameters"}, "stepped");
    }
    observe({"training_state"}, "end");
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
    equal({"loss", "output"}, fsdp1_ ? "FP-MP-3" : "FS-MP-1");
    equal({"gradients"}, fsdp1_ ? "FP-RED-2" : "FS-RED-2");
    equal({"parameters", "full_parameters"}, fsdp1_ ? "FP-SUMMON-1" : "FS-STATE-1");
    if (observed_.contains("register:probe")) equal({"register:probe"}, fsdp1_ ? "FP-MP-3" : "FS-MP-1");
    if (observed_.contains("register:norm")) equal({"register:norm"}, fsdp1_ ? "FP-GRAD-4" : "FS-RED-2");
    if (!state.empty()) equal(state, fsdp1_ ? "FP-STATE-1" : "FS-STATE-1");
    expect({{"equal", {{"what", {"units"}}, {"to", {"reference"}}}}}, fsdp1_ ? "WR-4" : "FS-GATHER-1");
    if (sketch_.world > 1)
      expect({{"layout", {{"kind", fsdp1_ ? "flat" : "chunk_dim0"}, {"sharded", true}}}},
             fsdp1_ ? "FP-FLAT-1" : "FS-SHARD-1");
    expect({{"training_state", "idle"}}, "G-5");
    collectives();
    orders();
  }

  // The dtype that all units have for a purpose, or nothing.
  std::optional<std::string> common_dtype(const char* key) const {
    std::optional<std::string> common;
    for (const Unit& unit : sketch_.units) {
      const Json policy = unit.settings.value("mixed_precision", Json());
      std::string dtype = "float32";
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
    if (layers.size() < 2) return;
    int pass = 0;
    bool first_iteration = true;
    for (const Iteration& iteration : sketch_.iterations)
      for (const MicroBatch& each : iteration.micro_batches) {
        if (each.sync) orders_of("pass" + std::to_string(pass), layers, first_iteration);
        first_iteration = false;
        ++pass;
      }
  }

  void orders_of(const std::string& label, const std::vector<std::string>& layers, bool first_iteration) {
    for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
      const std::string &unit = layers[i], &next = layers[i + 1];
      if (!fsdp1_) {
        order(label, "backward", {"reduce_scatter", next}, {"reduce_scatter", unit}, "FS-RED-5");
        if (i + 2 < layers.size())
          order(label, "backward", {"reduce_scatter", layers[i + 2]}, {"all_gather", unit}, "FS-RED-5");
        continue;
      }
      const Json& settings = sketch_.units.back().settings;
      const Json prefetch = settings.value("backward_prefetch", Json("BACKWARD_PRE"));
      const bool forward_prefetch = settings.value("forward_prefetch", false);
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
      else if (!first_iteration)
        order(label, "forward", {"all_gather", next}, {"compute", unit}, "FP-GATHER-5");
    }
  }

  void collectives() {
    const auto gathered = common_dtype("param_dtype"), reduced = common_dtype("reduce_dtype");
    int pass = 0, aside = 0;
    for (const CollectiveCounts& counts : count_collectives(sketch_)) {
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
        expect({{"collectives", arguments}, {"label", label}}, clause);
      };
      count("all_gather", "forward", counts.gathers_in_forward, fsdp1_ ? "FP-GATHER-1" : "FS-GATHER-1",
            gathered);
      count("all_gather", "backward", counts.gathers_in_backward, fsdp1_ ? "FP-GATHER-1" : "FS-RESHARD-1",
            gathered);
      count("reduce_scatter", "backward", counts.reduce_scatters, fsdp1_ ? "FP-RED-1" : "FS-RED-1", reduced);
      count("all_reduce", "backward", counts.all_reduces, fsdp1_ ? "FP-RED-1" : "FS-RED-1", std::nullopt);
    }
  }

  const Sketch& sketch_;
  const bool fsdp1_;
  MicroBatch was_;
  int states_ = 0, probes_ = 0;
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
