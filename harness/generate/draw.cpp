#include "harness/generate/draw.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "harness/generate/counts.hpp"
#include "harness/generate/refusals.hpp"
#include "harness/scenario/data/formula.hpp"

namespace fsdp_cts::generate {
namespace {

// Counter-based, as all data of the suite are, and so the same on every machine and with every library.
class Dice {
 public:
  explicit Dice(const std::string& label) : stream_(label) {}
  // 0 to n - 1.
  int below(int n) { return static_cast<int>(stream_.at(next_++) % static_cast<std::uint32_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool percent(int chance) { return below(100) < chance; }
  template <typename T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }

 private:
  Stream stream_;
  std::uint64_t next_ = 0;
};

// How often each thing is drawn, in percent of the sketches that could have it. 0 switches a class of draws
// off; say why beside it.
namespace chance {
constexpr int fsdp1 = 50;
constexpr int composable = 30;      // of FSDP1's
constexpr int mesh = 50;            // of worlds of four
constexpr int mesh_of_groups = 30;  // of fully_shard's
constexpr int root_gain = 30;
constexpr int odd = 30;
constexpr int scalar = 40;  // of buffers
constexpr int low_precision = 25;
constexpr int list_of_modules = 30;
constexpr int auto_wrap = 22;      // of FSDP1's
constexpr int exact_classes = 85;  // of these in low precision
constexpr int in_context = 15;     // of fsdp's
constexpr int outside = 10;        // of fsdp's
constexpr int momentum = 15;
constexpr int weight_decay = 12;
constexpr int dtype = 12;                   // of those without low precision: another one of the whole model
constexpr int cast_late = 40;               // of these
constexpr int halves = 50;                  // of what has factors
constexpr int hook = 10;                    // of fully_shard's
constexpr int async_gathers = 8;            // of fully_shard's
constexpr int no_unshard_in_backward = 25;  // of fully_shard's units that stay whole after a forward
constexpr int frozen = 20;
constexpr int ignored = 10;
constexpr int aside = 65, second_aside = 50;
constexpr int before_step = 30;
constexpr int clip = 20;
constexpr int chain = 15;
constexpr int recompute = 15;
constexpr int columns = 35;  // of fully_shard's
constexpr int meta = 12;
constexpr int synced = 12;                         // of FSDP1's
constexpr int offload = 8;                         // skipped where there is no accelerator
constexpr int host_inputs = 40;                    // of these
constexpr int load_over = 40;                      // of FSDP1's loads
constexpr int whole_unit = 40;                     // of what is frozen
constexpr int comm_hook = 15;                      // of fsdp's
constexpr int divide_factor = 15, force_sum = 10;  // of fully_shard's
constexpr int scale = 12;
constexpr int step_in_backward = 10;  // of fully_shard's
constexpr int input_gradient = 15;
constexpr int looked_at = 25;
constexpr int second = 12;
constexpr int policy_of_one = 15;  // of those that compute in full precision: a policy without param_dtype
constexpr int keep_low = 20;       // of FSDP1's of a low precision
constexpr int eval = 12;
constexpr int trained_after_all = 35;       // of what is frozen
constexpr int loud = 60;                    // of several micro-batches in low precision
constexpr int full_precision_in_eval = 50;  // of FSDP1's of a low precision
constexpr int guard = 20;
constexpr int order_checked = 6;  // of FSDP1's
constexpr int between = 15;       // of FSDP1's micro-batches: something is done to gradients
constexpr int late = 15;
constexpr int side = 25;
constexpr int part_scope = 60;  // of fsdp's scopes
constexpr int scope_on_host = 25;
constexpr int refusal = 80;  // and as often a second one
constexpr int resumed = 20;
}  // namespace chance

// A sketch with as many of its asides as fit together, taken in their order, so that one of them does not cost a whole drawing;
// nothing where it is illegal without any.
std::optional<Sketch> without_misfits(const Sketch& drawn) {
  Sketch sketch = drawn;
  for (Iteration& iteration : sketch.iterations) {
    iteration.before_step.clear();
    for (MicroBatch& each : iteration.micro_batches) each.before.clear();
  }
  if (why_illegal(sketch)) return std::nullopt;
  const auto add = [&](std::vector<Aside>& to, const std::vector<Aside>& asides) {
    for (const Aside& each : asides) {
      to.push_back(each);
      if (why_illegal(sketch)) to.pop_back();
    }
  };
  for (std::size_t i = 0; i < sketch.iterations.size(); ++i) {
    Iteration& iteration = sketch.iterations[i];
    for (std::size_t k = 0; k < iteration.micro_batches.size(); ++k)
      add(iteration.micro_batches[k].before, drawn.iterations[i].micro_batches[k].before);
    add(iteration.before_step, drawn.iterations[i].before_step);
  }
  return sketch;
}

class Drawing {
 public:
  Drawing(std::int64_t seed, int index, int attempt)
      : dice_(fmt::format("generate/{}/{}/{}", seed, index, attempt)) {}

  Sketch draw() {
    // Rounds of drawing until everything fits together; each is different, since the dice go on.
    while (true) {
      sketch_ = Sketch();
      draw_ranks();
      draw_model();
      if (parameters_of(sketch_).empty()) continue;
      draw_units();
      draw_wrapping();
      draw_parameters();
      draw_making();
      draw_program();
      draw_refusals();
      sketch_.data_seed = 1 + dice_.below(1'000'000);
      draw_resumed();
      if (auto fitting = without_misfits(sketch_)) return *fitting;
    }
  }

 private:
  bool fsdp1() const { return sketch_.api != "fully_shard"; }

  void draw_ranks() {
    sketch_.api = !dice_.percent(chance::fsdp1)       ? "fully_shard"
                  : dice_.percent(chance::composable) ? "composable"
                                                      : "fsdp";
    sketch_.world = dice_.one_of<int>({1, 2, 2, 2, 3, 4, 4, 4, 5});
    hybrid_ = sketch_.world == 4 && dice_.percent(chance::mesh);
    if (!hybrid_) return;
    sketch_.mesh = dice_.one_of<std::vector<int>>({{2, 2}, {2, 2}, {1, 4}, {4, 1}});
    // Groups of one rank in FSDP1 become NO_SHARD for some versions and stay hybrid for others.
    if (fsdp1()) sketch_.mesh = {2, 2};
    sketch_.mesh_of_groups = !fsdp1() && dice_.percent(chance::mesh_of_groups);
  }

  // A product of weights grows with every layer and, once weights are sums of such products, with every step;
  // so much depth and so many steps as 24 bits carry, or as 8 and 11 of the small dtypes.
  void draw_model() {
    low_precision_ = dice_.percent(chance::low_precision);
    if (!low_precision_ && dice_.percent(chance::dtype)) {
      sketch_.dtype = sketch_.x_dtype = dice_.one_of<std::string>({"float64", "bfloat16", "float16"});
      sketch_.cast_late = dice_.percent(chance::cast_late);
    }
    small_ = low_precision_ || has_small_dtype(sketch_);
    sketch_.in = dice_.between(1, small_ ? 4 : 9);
    sketch_.rows = small_ ? 1 : dice_.between(1, 2);
    chain_ = !small_ && dice_.percent(chance::chain);
    const int blocks = chain_ ? dice_.between(3, 4) : dice_.between(1, small_ ? 2 : 4);
    const bool recompute = !chain_ && !low_precision_ && dice_.percent(chance::recompute);
    for (int i = 0; i < blocks; ++i) {
      Block block;
      block.kind = dice_.one_of<BlockKind>(
          {BlockKind::linear, BlockKind::linear, BlockKind::linear, BlockKind::relu, BlockKind::nested,
           BlockKind::nested, BlockKind::residual, BlockKind::twice, BlockKind::tied, BlockKind::spare,
           BlockKind::gain, low_precision_ && !fsdp1() ? BlockKind::linear : BlockKind::shift,
           fsdp1() || dice_.percent(50) ? BlockKind::linear : BlockKind::empty});
      if (chain_) block.kind = BlockKind::linear;
      block.width = dice_.between(1, small_ ? 4 : 9);
      block.middle = dice_.between(1, small_ ? 3 : 7);
      block.bias = dice_.percent(50);
      block.relu = dice_.percent(25);
      block.recompute = recompute && dice_.percent(50);
      block.scalar = block.kind == BlockKind::shift && dice_.percent(chance::scalar);
      block.odd =
          (block.kind == BlockKind::residual || block.kind == BlockKind::twice) && dice_.percent(chance::odd);
      sketch_.blocks.push_back(block);
    }
    sketch_.root_gain = dice_.percent(chance::root_gain);
    const bool partial = hybrid_ && !fsdp1();  // what waits for replicas, and a backward that fails
    sketch_.guard = !chain_ && dice_.percent(partial ? 3 * chance::guard : chance::guard);
    if (partial && sketch_.guard) sketch_.root_gain = dice_.percent(2 * chance::root_gain);
    if (chain_ || !dice_.percent(chance::side)) return;
    Block side;
    side.kind = BlockKind::side;
    side.bias = dice_.percent(50);
    sketch_.blocks.push_back(side);
  }

  Json policy() {
    const std::string dtype = dice_.one_of<std::string>({"bfloat16", "bfloat16", "float16", "float64"});
    Json policy = {{"param_dtype", dtype}};
    if (dice_.percent(50)) policy["reduce_dtype"] = dice_.one_of<std::string>({"float32", dtype});
    // Without the cast the first layer meets another dtype (CP-3).
    if (!fsdp1() && dice_.percent(25)) policy["output_dtype"] = "float32";
    if (fsdp1() && dice_.percent(25)) policy["cast_forward_inputs"] = true;
    if (fsdp1() && dtype != "float64" && dice_.percent(chance::keep_low))
      policy["keep_low_precision_grads"] = true;
    if (has_block(sketch_, BlockKind::shift)) policy["buffer_dtype"] = dtype;
    return policy;
  }

  void draw_units() {
    const std::vector<ModuleAt> candidates = unit_candidates(sketch_);
    std::vector<ModuleAt> chosen;
    const int density = chain_ ? 100 : dice_.one_of<int>({0, 30, 50, 80});
    for (const ModuleAt& each : candidates)
      if (!each.is_root() && has_parameters(each) && dice_.percent(density)) chosen.push_back(each);
    const Json common = low_precision_ ? policy() : Json();
    const Json settings = draw_settings(Json::object());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      Unit unit;
      unit.modules = {chosen[i]};
      while (!chain_ && !fsdp1() && i + 1 < chosen.size() && dice_.percent(chance::list_of_modules) &&
             chosen[i + 1].inner == chosen[i].inner && chosen[i].inner < 0)
        unit.modules.push_back(chosen[++i]);
      unit.settings = !chain_ && dice_.percent(30) ? draw_settings(settings) : settings;
      sketch_.units.push_back(std::move(unit));
    }
    Unit root;
    root.modules = {ModuleAt{}};
    root.settings = !chain_ && dice_.percent(30) ? draw_settings(settings) : settings;
    sketch_.units.push_back(std::move(root));
    for (Unit& unit : sketch_.units) {
      // fully_shard casts for every unit by itself, so there they may differ.
      if (low_precision_ && (sketch_.api == "fsdp" || dice_.percent(85)))
        unit.settings["mixed_precision"] = common;
    }
    if (low_precision_ && !fsdp1() && dice_.percent(30)) sketch_.x_dtype = "bfloat16";
    if (!low_precision_ && sketch_.dtype == "float32" && dice_.percent(chance::policy_of_one)) {
      const bool of_output = !fsdp1() && dice_.percent(50);
      if (of_output) sketch_.units.back().settings["mixed_precision"] = {{"output_dtype", "bfloat16"}};
      for (Unit& unit : sketch_.units)
        if (!of_output) unit.settings["mixed_precision"] = {{"reduce_dtype", "float64"}};
    }
    if (dice_.percent(chance::second))
      sketch_.second =
          low_precision_ || has_small_dtype(sketch_) || dice_.percent(50) ? sketch_.dtype : "bfloat16";
    sketch_.order_checked = fsdp1() && dice_.percent(chance::order_checked);
    sketch_.full_precision_in_eval =
        low_precision_ && fsdp1() && dice_.percent(chance::full_precision_in_eval);
  }

  Json draw_policy() {
    const std::string kind =
        dice_.one_of<std::string>({"module_wrap", "size_based", "size_based", "custom", "always", "never"});
    Json policy = {{"policy", kind}};
    const std::string layer = dice_.one_of<std::string>({"Linear", "Linear", "Sequential", "Graph"});
    if (kind == "module_wrap") policy["classes"] = {layer};
    if (kind == "size_based") {
      policy["min_num_params"] = dice_.between(2, 40);
      if (dice_.percent(40)) policy["exclude_wrap"] = {layer};
      if (dice_.percent(40)) policy["force_leaf"] = {dice_.one_of<std::string>({"Sequential", "Graph"})};
    }
    if (kind == "custom") {
      const Json other = {{"sharding_strategy", dice_.one_of<std::string>({"SHARD_GRAD_OP", "FULL_SHARD"})}};
      policy["rules"] =
          Json::array({{{"class", layer}, {"wrap", hybrid_ || dice_.percent(40) ? Json(true) : other}}});
    }
    return policy;
  }

  // Two of the three, or one.
  Json draw_exact_classes() {
    std::vector<std::string> classes = {"Linear", "Sequential", "Graph"};
    while (classes.size() > 2 || (classes.size() > 1 && dice_.percent(50)))
      classes.erase(classes.begin() + dice_.below(static_cast<int>(classes.size())));
    return classes;
  }

  void draw_wrapping() {
    if (!fsdp1() || chain_) return;
    if (dice_.percent(chance::auto_wrap)) {
      sketch_.units = {sketch_.units.back()};
      sketch_.auto_wrap = draw_policy();
      Json& settings = sketch_.units.back().settings;
      if (low_precision_ && settings.contains("mixed_precision") && dice_.percent(chance::exact_classes))
        settings["mixed_precision"].update({{"module_classes_to_ignore", draw_exact_classes()},
                                            {"cast_forward_inputs", true}});  // units of two dtypes meet
      return;
    }
    if (sketch_.api != "fsdp") return;
    sketch_.in_context = !hybrid_ && dice_.percent(chance::in_context);
    if (!dice_.percent(chance::outside)) return;
    for (const ModuleAt& each : unit_candidates(sketch_)) {
      const bool is_unit = std::any_of(sketch_.units.begin(), sketch_.units.end(),
                                       [&](const Unit& unit) { return unit.modules.front() == each; });
      if (!is_unit && sketch_.outside.empty()) sketch_.outside.push_back(each);
    }
  }

  bool has_parameters(const ModuleAt& module) const {
    const auto all = parameters_of(sketch_);
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& each) { return holds(module, each.at.module); });
  }

  // What every instance of a model must agree on comes from `common`.
  Json draw_settings(const Json& common) {
    Json settings = Json::object();
    if (!fsdp1()) {
      const int group = sketch_.mesh.empty() ? sketch_.world : sketch_.mesh[1];
      const Json choice =
          dice_.one_of<Json>({Json(), Json(), Json(true), Json(true), Json(false), Json(1), Json(group),
                              group == 4 ? Json(2) : Json(true), group == 4 ? Json(2) : Json(true)});
      if (!choice.is_null()) settings["reshard_after_forward"] = choice;
      return settings;
    }
    if (hybrid_)
      settings["sharding_strategy"] =
          dice_.one_of<std::string>({"HYBRID_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"});
    else
      settings["sharding_strategy"] =
          dice_.one_of<std::string>({"FULL_SHARD", "FULL_SHARD", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"});
    settings["backward_prefetch"] =
        dice_.one_of<Json>({Json("BACKWARD_PRE"), Json("BACKWARD_POST"), Json(nullptr)});
    if (dice_.percent(40)) settings["forward_prefetch"] = true;
    if (sketch_.api == "composable") {
      settings.erase("backward_prefetch");  // always BACKWARD_PRE
      return settings;
    }
    for (const char* key : {"use_orig_params", "limit_all_gathers"})
      settings[key] = common.contains(key) ? common[key] : Json(dice_.percent(60));
    return settings;
  }

  void draw_parameters() {
    const std::vector<ParameterInfo> all = parameters_of(sketch_);
    if (all.empty()) return;
    // One parameter, or all of one module.
    const auto some = [&] {
      const ParameterAt at = dice_.one_of(all).at;
      return dice_.percent(50) ? at : ParameterAt{at.module, ""};
    };
    if (chain_) return;
    if (dice_.percent(chance::frozen))
      sketch_.frozen.push_back(dice_.percent(chance::whole_unit)
                                   ? ParameterAt{dice_.one_of(sketch_.units).modules.front(), ""}
                                   : some());
    if (dice_.percent(sketch_.auto_wrap.is_null() ? chance::ignored : 3 * chance::ignored))
      sketch_.ignored.push_back(some());
    if (sketch_.frozen.empty() && !sketch_.ignored.empty() && dice_.percent(30))
      sketch_.frozen = sketch_.ignored;
    if (dice_.percent(chance::momentum)) sketch_.momentum = 0.5;
    if (dice_.percent(chance::weight_decay)) sketch_.weight_decay = dice_.one_of<double>({1.0, 0.5});
  }

  // How the model is made, and what it is told once.
  void draw_making() {
    if (!fsdp1() && dice_.percent(chance::columns)) {
      for (const ParameterInfo& each : parameters_of(sketch_)) {
        const int unit = unit_of(sketch_, each.at);
        if (unit >= 0 && each.at.name == "weight" &&
            shape_of(sketch_, each.at)[1] % shard_group(sketch_, sketch_.units[unit]) == 0 &&
            dice_.percent(70))
          sketch_.columns.push_back(each.at);
      }
    }
    for (const ParameterInfo& each : parameters_of(sketch_))
      if (each.at.name == "gain" && !low_precision_ && sketch_.dtype == "float32" &&
          dice_.percent(chance::halves))
        sketch_.halves.push_back(each.at);
    sketch_.meta = sketch_.frozen.empty() && sketch_.dtype == "float32" && sketch_.halves.empty() &&
                   (!fsdp1() || sketch_.ignored.empty()) && !has_block(sketch_, BlockKind::tied) &&
                   dice_.percent(chance::meta);
    sketch_.synced = fsdp1() && !sketch_.meta && sketch_.ignored.empty() && dice_.percent(chance::synced);
    sketch_.offload = sketch_.ignored.empty() && (fsdp1() || !sketch_.meta) && dice_.percent(chance::offload);
    sketch_.host_inputs = sketch_.offload && dice_.percent(chance::host_inputs);
    if (sketch_.api == "fsdp" && sketch_.mesh.empty() && sketch_.world > 1 &&
        dice_.percent(chance::comm_hook))
      sketch_.comm_hook = dice_.one_of<double>({1.0, 0.5});
    sketch_.async_gathers = !fsdp1() && dice_.percent(chance::async_gathers);
    for (Unit& unit : sketch_.units)
      if (!fsdp1() && !frees_after_forward(sketch_, unit))
        unit.unshard_in_backward = !dice_.percent(chance::no_unshard_in_backward);
    if (!fsdp1() && !low_precision_) {
      const bool divides = dice_.percent(chance::divide_factor), sums = dice_.percent(chance::force_sum);
      for (Unit& unit : sketch_.units) {
        if (divides && dice_.percent(60)) unit.divide_factor = dice_.one_of<int>({1, 2, 4});
        // NCCL alone scales while it reduces.
        unit.force_sum = sums || unit.divide_factor != 0;
        if (dice_.percent(chance::hook)) unit.hook = dice_.one_of<double>({2.0, 0.5});
      }
    }
    if (sketch_.dtype != "float16" && sketch_.halves.empty() && !keeps_low_gradients(sketch_) &&
        dice_.percent(chance::scale))
      sketch_.scale = dice_.one_of<double>({2, 4});
    sketch_.step_in_backward =
        !fsdp1() && sketch_.scale == 0 && sketch_.frozen.empty() && sketch_.ignored.empty() &&
        !has_block(sketch_, BlockKind::spare) && !has_block(sketch_, BlockKind::empty) &&
        !has_block(sketch_, BlockKind::twice) && dice_.percent(chance::step_in_backward);
  }

  void draw_refusals() {
    const std::vector<std::string> names = refusals_for(sketch_);
    for (int i = 0; i < 2 && !names.empty(); ++i)
      if (dice_.percent(chance::refusal)) sketch_.refusals.push_back(dice_.one_of(names));
  }

  void draw_resumed() {
    if ((!sketch_.ignored.empty() && sketch_.frozen.empty()) || !dice_.percent(chance::resumed)) return;
    sketch_.resumed = Resumed{dice_.one_of<std::string>({"native", "dcp", "safetensors"}),
                              has_block(sketch_, BlockKind::empty)
                                  ? "fully_shard"
                                  : dice_.one_of<std::string>({"fully_shard", "fsdp", "composable"}),
                              dice_.percent(50), dice_.one_of<std::string>({"", "", "native", "dcp"})};
  }

  // Factors one behind another from input to output.
  int depth() const {
    int depth = sketch_.root_gain ? 1 : 0;
    for (const Block& block : sketch_.blocks) {
      if (block.kind == BlockKind::relu || block.kind == BlockKind::shift || block.kind == BlockKind::empty)
        continue;
      depth +=
          block.kind == BlockKind::nested || block.kind == BlockKind::twice || block.kind == BlockKind::tied
              ? 2
              : 1;
    }
    return depth;
  }

  Aside draw_aside() {
    Aside aside;
    const std::vector<ParameterInfo> all = parameters_of(sketch_);
    std::vector<AsideKind> kinds = {AsideKind::eval_forward,     AsideKind::no_grad_forward,
                                    AsideKind::full_state,       AsideKind::sharded_state,
                                    AsideKind::first_rank_state, AsideKind::failed_forward};
    if (sketch_.api == "fsdp" || (!fsdp1() && sketch_.ignored.empty())) kinds.push_back(AsideKind::clip);
    if (!fsdp1() || original_parameters(sketch_, sketch_.units.back())) kinds.push_back(AsideKind::write);
    if (sketch_.units.size() > 1) kinds.insert(kinds.end(), {AsideKind::part_forward, AsideKind::part_state});
    if (sketch_.api != "composable") kinds.push_back(AsideKind::foreign_state);
    if (sketch_.api == "fsdp") kinds.push_back(AsideKind::refused_scope);
    if (!sketch_.step_in_backward) kinds.push_back(AsideKind::set_requires_grad);
    if (fsdp1())
      kinds.insert(kinds.end(), {AsideKind::summon_mutate, AsideKind::summon, AsideKind::summon,
                                 AsideKind::replace, AsideKind::local_state});
    else
      kinds.insert(kinds.end(), {AsideKind::unshard, AsideKind::unshard_and_reshard,
                                 AsideKind::set_reshard_after_forward});
    aside.kind = dice_.one_of(kinds);
    aside.value = dice_.percent(50);
    switch (aside.kind) {
      case AsideKind::summon:
        draw_scope(aside);
        [[fallthrough]];
      case AsideKind::summon_mutate:
      case AsideKind::write:
      case AsideKind::replace:
        aside.at = dice_.one_of(all).at;
        while (!sketch_.frozen.empty() && !takes(sketch_.frozen.front(), aside.at) && dice_.percent(80))
          aside.at = dice_.one_of(all).at;
        if (aside.options.contains("part")) aside.at = of_inner_unit().value_or(aside.at);
        break;
      case AsideKind::full_state:
      case AsideKind::sharded_state:
        if (fsdp1() && dice_.percent(chance::load_over)) aside.at = dice_.one_of(all).at;
        break;
      case AsideKind::part_forward:
      case AsideKind::part_state:
        aside.at.module = dice_.one_of(sketch_.units).modules.front();
        break;
      case AsideKind::foreign_state:
        aside.options["dtype"] = dice_.one_of<std::string>({"bfloat16", "float64"});
        break;
      case AsideKind::set_requires_grad:
        aside.value = !sketch_.frozen.empty() && dice_.percent(60);
        aside.at = aside.value ? sketch_.frozen.front() : dice_.one_of(all).at;
        break;
      case AsideKind::unshard:
      case AsideKind::unshard_and_reshard:
      case AsideKind::set_reshard_after_forward:
        aside.at.module = dice_.one_of(sketch_.units).modules.front();
        break;
      default:
        break;
    }
    return aside;
  }

  // A parameter of a unit that is not the root's.
  std::optional<ParameterAt> of_inner_unit() {
    std::vector<ParameterAt> found;
    for (const ParameterInfo& each : parameters_of(sketch_)) {
      const int unit = unit_of(sketch_, each.at);
      if (unit >= 0 && !sketch_.units[unit].modules.front().is_root()) found.push_back(each.at);
    }
    return found.empty() ? std::nullopt : std::optional(dice_.one_of(found));
  }

  void draw_scope(Aside& aside) {
    aside.value = false;
    for (const char* key : {"recurse", "writeback"})
      if (dice_.percent(40)) aside.options[key] = false;
    if (dice_.percent(chance::scope_on_host)) aside.options["offload_to_cpu"] = true;
    // Before the root has run, a part would take itself for the root.
    if (sketch_.api == "fsdp" && !sketch_.iterations.empty() && of_inner_unit() &&
        dice_.percent(chance::part_scope)) {
      aside.options["part"] = true;
      return;
    }
    if (dice_.percent(30)) {
      aside.options.update({{"rank0_only", true}, {"writeback", false}});
      aside.options.erase("recurse");
    }
    if (original_parameters(sketch_, sketch_.units.back()) && !aside.options.contains("offload_to_cpu") &&
        dice_.percent(50))
      aside.options["with_grads"] = true;
  }

  void draw_program() {
    const int depth = this->depth();
    const int iterations = small_ ? 1 : dice_.between(1, depth <= 3 ? 3 : 2);
    // Each step but the last multiplies the bits of the next forward; one is enough to see stale parameters.
    const int steps_before_forward = depth <= 1 ? 2 : depth <= 2 || dice_.percent(50) ? 1 : 0;
    sketch_.lr = dice_.one_of<double>({1.0, 0.5, 0.25});
    for (int i = 0; i < iterations; ++i) {
      Iteration iteration;
      iteration.zero_grad =
          dice_.one_of<ZeroGrad>({ZeroGrad::none, ZeroGrad::none, ZeroGrad::zero, ZeroGrad::keep});
      iteration.late = iteration.zero_grad != ZeroGrad::keep && dice_.percent(chance::late);
      const int micro_batches = dice_.one_of<int>({1, 1, 2, 2, 3});
      for (int k = 0; k < micro_batches; ++k)
        iteration.micro_batches.push_back(draw_micro_batch(k, micro_batches));
      const bool holds_sums = !has_small_dtype(sketch_) && sketch_.halves.empty();
      if (!sketch_.step_in_backward && dice_.percent(chance::clip))
        iteration.clip = holds_sums && dice_.percent(50) ? Clip::sum : Clip::largest;
      iteration.step = i + 1 == iterations || i < steps_before_forward;
      if (sketch_.step_in_backward) iteration.step = false;
      draw_before_step(iteration);
      draw_scaling(iteration);
      draw_optimizer_state(iteration, i);
      sketch_.iterations.push_back(std::move(iteration));
    }
    if (!fsdp1() && chain_of_layers(sketch_).size() > 2)
      sketch_.prefetch =
          dice_.one_of<Prefetch>({Prefetch::by_itself, Prefetch::listed, Prefetch::listed_anew});
  }

  void draw_before_step(Iteration& iteration) {
    if (chain_ || !iteration.step || !dice_.percent(chance::before_step)) return;
    Aside aside = draw_aside();
    aside.kind = dice_.one_of<AsideKind>({AsideKind::full_state, AsideKind::sharded_state,
                                          AsideKind::failed_forward, AsideKind::failed_forward,
                                          fsdp1() ? AsideKind::summon : AsideKind::failed_forward,
                                          AsideKind::write_gradient, AsideKind::write_gradient});
    aside.at = {};
    if (aside.kind == AsideKind::write_gradient) aside.at = dice_.one_of(parameters_of(sketch_)).at;
    if (aside.kind == AsideKind::summon) {
      aside.at = dice_.one_of(parameters_of(sketch_)).at;
      aside.options = Json::object();
      draw_scope(aside);
      aside.options.erase("part");  // which shows no gradients
      aside.value = has_gradient(sketch_, aside.at) && aside.options.contains("with_grads") &&
                    !aside.options.contains("rank0_only") && !aside.options.contains("recurse");
    }
    iteration.before_step.push_back(aside);
  }

  void draw_scaling(Iteration& iteration) {
    if (sketch_.scale == 0) return;
    iteration.step = true;
    if (iteration.zero_grad == ZeroGrad::keep) iteration.zero_grad = ZeroGrad::none;
    iteration.unscale = iteration.clip != Clip::none || dice_.percent(40);
    if (!iteration.unscale && sketch_.ignored.empty() &&
        (!fsdp1() || original_parameters(sketch_, sketch_.units.back())) && dice_.percent(40))
      iteration.overflow = dice_.one_of<std::string>({"inf", "nan"});
  }

  void draw_optimizer_state(Iteration& iteration, int number) {
    if (sketch_.momentum == 0 || sketch_.scale != 0 || sketch_.step_in_backward || number == 0 ||
        !sketch_.iterations.front().step)
      return;
    Aside aside;
    aside.kind = AsideKind::optimizer_state;
    aside.value = dice_.percent(50);
    if (dice_.percent(40)) aside.options["same"] = true;
    if (dice_.percent(80)) iteration.micro_batches.front().before.push_back(aside);
  }

  static Aside aside_of(AsideKind kind) {
    Aside aside;
    aside.kind = kind;
    return aside;
  }

  bool may_be_trained_after_all() const {
    return !sketch_.frozen.empty() && !sketch_.step_in_backward &&
           std::all_of(sketch_.units.begin(), sketch_.units.end(),
                       [&](const Unit& unit) { return !fsdp1() || original_parameters(sketch_, unit); });
  }

  void draw_between(MicroBatch& micro_batch) {
    const bool assigned = original_parameters(sketch_, sketch_.units.back()) && dice_.percent(60);
    Aside aside = aside_of(assigned ? AsideKind::assign_gradient : AsideKind::drop_gradients);
    aside.value = dice_.percent(70);
    if (assigned) {
      aside.at = dice_.one_of(parameters_of(sketch_)).at;
      aside.options["how"] = dice_.one_of<std::string>({"none", "inplace", "data"});
    }
    micro_batch.before.push_back(aside);
  }

  Uses draw_uses() {
    if (fsdp1() && sketch_.momentum != 0 && !original_parameters(sketch_, sketch_.units.back()))
      return Uses::both;
    const bool side_is_trained = sketch_.frozen.empty() && sketch_.ignored.empty() && !sketch_.guard;
    return dice_.one_of<Uses>(
        {Uses::both, Uses::both, Uses::main, side_is_trained ? Uses::side : Uses::main});
  }

  MicroBatch draw_micro_batch(int number, int count) {
    MicroBatch made;
    made.input_gradient = dice_.percent(chance::input_gradient);
    if (chain_) return made;
    made.looked_at = dice_.percent(chance::looked_at);
    made.loud = low_precision_ && count > 1 && sums_in_full_precision(sketch_) && dice_.percent(chance::loud);
    if (has_side(sketch_)) made.uses = draw_uses();
    made.eval = dice_.percent(sketch_.full_precision_in_eval ? 4 * chance::eval : chance::eval);
    if (number == 0 && sketch_.guard && !sketch_.step_in_backward && dice_.percent(50))
      made.before.push_back(aside_of(AsideKind::failed_backward));
    if (number == 0 && dice_.percent(chance::trained_after_all) && may_be_trained_after_all()) {
      made.before.push_back(aside_of(AsideKind::set_requires_grad));
      made.before.back().at = sketch_.frozen.front();
      made.before.back().value = true;
    }
    if (number == 0 && dice_.percent(chance::aside)) made.before.push_back(draw_aside());
    if (number == 0 && dice_.percent(chance::second_aside)) made.before.push_back(draw_aside());
    if (number > 0 && dice_.percent(10)) made.before.push_back(aside_of(AsideKind::no_grad_forward));
    if (number > 0 && fsdp1() && sketch_.scale == 0 && dice_.percent(chance::between)) draw_between(made);
    if (number > 0 && sketch_.units.size() > 1 && !low_precision_ && dice_.percent(10)) {
      made.before.push_back(aside_of(AsideKind::part_forward));
      made.before.back().at.module = dice_.one_of(sketch_.units).modules.front();
    }
    if (number > 0 && partial_ && sketch_.guard && sketch_.root_gain && dice_.percent(60))
      made.before.push_back(aside_of(AsideKind::failed_backward));
    partial_ = false;
    if (number + 1 == count) return made;
    made.sync = dice_.percent(40);
    made.nested = fsdp1() && !made.sync && dice_.percent(20);
    if (fsdp1() || sketch_.step_in_backward) return made;
    made.reshard_after_backward = dice_.percent(60);
    made.last_backward = dice_.percent(60);
    made.all_reduce = dice_.percent(sketch_.mesh.empty() ? 75 : 50);
    partial_ = made.sync && !made.all_reduce;
    return made;
  }

  Dice dice_;
  Sketch sketch_;
  bool hybrid_ = false, low_precision_ = false, chain_ = false;
  bool small_ = false;    // some dtype is: fewer bits to spend
  bool partial_ = false;  // the last micro-batch's gradients wait for replicas
};

}  // namespace

Sketch draw_sketch(std::int64_t seed, int index, int attempt) {
  return Drawing(seed, index, attempt).draw();
}

}  // namespace fsdp_cts::generate
