#include "harness/generate/sketch.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/generate/counts.hpp"
#include "harness/generate/refusals.hpp"

namespace fsdp_cts::generate {
namespace {

bool keeps_width(BlockKind kind) {
  return kind == BlockKind::relu || kind == BlockKind::residual || kind == BlockKind::twice ||
         kind == BlockKind::tied || kind == BlockKind::gain || kind == BlockKind::shift ||
         kind == BlockKind::empty || kind == BlockKind::side;
}

std::vector<std::string> inner_names(const Block& block) {
  switch (block.kind) {
    case BlockKind::nested:
      return {"0", block.relu ? "2" : "1"};
    case BlockKind::residual:
    case BlockKind::twice:
      return {block.odd ? "in 100%" : "inner"};
    case BlockKind::tied:
      return {"a", "b"};
    case BlockKind::spare:
      return {"used", "spare"};
    default:
      return {};
  }
}

bool is_hybrid(const Unit& unit) {
  const std::string strategy = unit.settings.value("sharding_strategy", "");
  return strategy == "HYBRID_SHARD" || strategy == "_HYBRID_SHARD_ZERO2";
}

bool low_precision(const Sketch& sketch) {
  return std::any_of(sketch.units.begin(), sketch.units.end(), computes_in);
}

bool exists(const Sketch& sketch, const ModuleAt& module) {
  if (module.is_root()) return module.inner < 0;
  if (module.block >= static_cast<int>(sketch.blocks.size())) return false;
  return module.inner < static_cast<int>(inner_names(sketch.blocks[module.block]).size());
}

std::optional<std::string> bad_units(const Sketch& sketch) {
  if (sketch.units.empty() || sketch.units.back().modules != std::vector{ModuleAt{}})
    return "the root is a unit, and the last: children are sharded before their parent";
  const std::vector<ModuleAt> candidates = unit_candidates(sketch);
  std::set<ModuleAt> seen;
  for (const Unit& unit : sketch.units) {
    if (unit.modules.empty() || (is_fsdp1(sketch) && unit.modules.size() > 1))
      return "FSDP1 wraps one module at a time";
    for (const ModuleAt& module : unit.modules) {
      // Modules inside `tied` are none: a tensor shared between two units is undefined.
      if (std::find(candidates.begin(), candidates.end(), module) == candidates.end())
        return "not a module that can be a unit";
      for (const ModuleAt& earlier : seen)
        if (holds(earlier, module)) return "a module inside a unit was sharded after it";
      if (unit.modules.size() > 1 && module.is_root()) return "the root is alone in its unit";
    }
    for (const ModuleAt& module : unit.modules) {
      if (!seen.insert(module).second) return "CP-1, fully_shard: once per module";
      for (const ModuleAt& other : unit.modules)
        if (other != module && holds(other, module)) return "a list of modules holds one inside another";
    }
    if (unit.modules.size() > 1) {
      // Only the first of a list that runs casts its inputs, and the last one frees: each is called once.
      if (computes_in(unit)) return "a list of modules under a param_dtype";
      for (const ModuleAt& module : unit.modules) {
        const Block& block = sketch.blocks[module.block];
        if (block.kind == BlockKind::twice || (block.kind == BlockKind::spare && module.inner == 1))
          return "a module of a list that is not called once";
      }
    }
    // The backward of one call frees it for that of the other.
    const bool called_twice = std::any_of(unit.modules.begin(), unit.modules.end(),
                                          [&](const ModuleAt& at) { return runs_of(sketch, at) > 1; });
    if (!unit.unshard_in_backward && (is_fsdp1(sketch) || frees_after_forward(sketch, unit) || called_twice ||
                                      has_aside(sketch, AsideKind::set_reshard_after_forward)))
      return "FS-UNSHARD-3: a backward without its parameters";
    const Json reshard = unit.settings.value("reshard_after_forward", Json());
    if (reshard.is_number_integer() &&
        (reshard.get<int>() < 1 || shard_group(sketch, unit) % reshard.get<int>() != 0))
      return "FS-RESHARD-2: an integer is a factor of the group";
    // Only the root casts by default (FP-MP-4), so another dtype further inside meets inputs of the root's.
    if (sketch.api == "fsdp" && unit.settings.value("mixed_precision", Json()) !=
                                    sketch.units.back().settings.value("mixed_precision", Json()))
      return "FP-MP-4: one dtype for all units";
    // A parameter that belongs to no unit is cast by none.
    if (!sketch.ignored.empty() && computes_in(unit)) return "ignored parameters under a param_dtype";
    // All instances of a model share one pair of groups.
    if (is_hybrid(unit) != is_hybrid(sketch.units.back())) return "hybrid strategies stand alone";
  }
  // G-6 goes by what the plan asks for, and would miss a shard where only units without parameters ask for
  // one.
  bool asks = false, has = false;
  for (const Unit& unit : sketch.units) asks = asks || is_sharded(sketch, unit);
  for (const ParameterInfo& each : parameters_of(sketch))
    if (const int unit = unit_of(sketch, each.at); unit >= 0)
      has = has || is_sharded(sketch, sketch.units[unit]);
  if (asks && !has) return "G-6: nothing to shard";
  if (is_hybrid(sketch.units.back()) && sketch.mesh.empty()) return "a hybrid strategy needs a mesh";
  return std::nullopt;
}

// A unit of FSDP1 with flat parameters shown as such has one requires_grad (WR-5).
std::optional<std::string> bad_freezing(const Sketch& sketch) {
  const std::vector<ParameterInfo> parameters = parameters_of(sketch);
  for (const auto* list : {&sketch.frozen, &sketch.ignored})
    for (const ParameterAt& pattern : *list)
      if (std::none_of(parameters.begin(), parameters.end(),
                       [&](const ParameterInfo& each) { return takes(pattern, each.at); }))
        return "names no parameter";
  bool trained = false;
  for (std::size_t i = 0; i < sketch.units.size(); ++i) {
    bool frozen = false, free = false;
    for (const ParameterInfo& each : parameters) {
      if (unit_of(sketch, each.at) != static_cast<int>(i)) continue;
      const bool is_one = is_frozen(sketch, each.at);
      (is_one ? frozen : free) = true;
      trained = trained || (!is_one && reaches(Uses::main, sketch, each));
    }
    // PyTorch's composable front door keeps original parameters and does not tell its policies.
    const bool original =
        original_parameters(sketch, sketch.units[i]) && (sketch.api == "fsdp" || sketch.auto_wrap.is_null());
    if (is_fsdp1(sketch) && frozen && free && !original)
      return "WR-5: frozen and trainable in one flat parameter";
  }
  if (!trained) return "nothing would be trained";
  return std::nullopt;
}

std::optional<std::string> bad_wrapping(const Sketch& sketch) {
  if (sketch.api != "fsdp" && (sketch.in_context || !sketch.outside.empty()))
    return "wrap() makes units of fsdp";
  if (sketch.auto_wrap.is_null()) return std::nullopt;
  const std::string policy = sketch.auto_wrap.value("policy", "");
  if (!is_fsdp1(sketch) || sketch.units.size() > 1 || sketch.in_context || !sketch.outside.empty())
    return "WR-1: no units inside a model that is wrapped automatically";
  if (sketch.api == "composable" && policy != "module_wrap" && policy != "custom")
    return "the composable form takes objects as policies, not functions";
  const Json exact = exact_classes(sketch);
  if (std::find(exact.begin(), exact.end(), class_of(sketch, {})) != exact.end())
    return "FP-MP-11 speaks of modules below the root";
  // WR-5; and a policy may put each name of a tied parameter into another unit.
  if (!sketch.frozen.empty() && !original_parameters(sketch, sketch.units.back())) return "WR-5";
  for (const Block& block : sketch.blocks)
    if (block.kind == BlockKind::tied) return "a tensor shared between two units is undefined";
  return std::nullopt;
}

// What scopes may be asked for together (FP-SUMMON-5, -6).
std::optional<std::string> bad_scope(const Sketch& sketch, const Aside& aside) {
  const Json& options = aside.options;
  if (options.contains("part")) {
    const int unit = unit_of(sketch, aside.at);
    if (sketch.api != "fsdp" || !sketch.auto_wrap.is_null() || unit < 0 ||
        options.value("rank0_only", false) || options.value("with_grads", false) ||
        sketch.units[unit].modules.front().is_root())
      return "FP-SUMMON-12: a part is a unit";
  }
  if (options.value("rank0_only", false) && options.value("writeback", true))
    return "FP-SUMMON-5: one rank writes";
  for (const Unit& unit : sketch.units) {
    if (options.value("with_grads", false) && !original_parameters(sketch, unit))
      return "FP-SUMMON-5: gradients of a flat parameter";
    if (options.value("with_grads", false) && options.value("offload_to_cpu", false))
      return "FP-SUMMON-5: gradients in host memory";
    if (!is_sharded(sketch, unit) && options.value("offload_to_cpu", false))
      return "FP-SUMMON-5: what is not sharded stays where it is";
    // Which rank's values of what every rank has whole would count afterwards?
    if (!is_sharded(sketch, unit) &&
        (options.value("rank0_only", false) || !options.value("writeback", true)))
      return "FP-SUMMON-6: a unit that is not sharded has no other copy";
  }
  return std::nullopt;
}

// Buffers are cast to what is computed in.
bool buffers_follow(const Sketch& sketch) {
  return is_fsdp1(sketch) && std::all_of(sketch.units.begin(), sketch.units.end(), [](const Unit& unit) {
           const Json policy = unit.settings.value("mixed_precision", Json::object());
           return policy.value("buffer_dtype", Json()) == policy.value("param_dtype", Json());
         });
}

// How a model is made, beside its units.
std::optional<std::string> bad_making(const Sketch& sketch) {
  const bool fsdp1 = is_fsdp1(sketch);
  const std::vector<ParameterInfo> parameters = parameters_of(sketch);
  if (has_block(sketch, BlockKind::empty) &&
      (fsdp1 || (sketch.resumed && sketch.resumed->api != "fully_shard")))
    return "a flat parameter may consist of nothing";
  for (const ParameterAt& at : sketch.columns) {
    const std::vector<ParameterInfo> all = parameters_of(sketch);
    if (std::none_of(all.begin(), all.end(), [&](const auto& each) { return each.at == at; }))
      return "names no parameter";
    const int unit = unit_of(sketch, at);
    if (fsdp1 || unit < 0 || at.name != "weight") return "FS-SHARD-4: matrices of fully_shard";
    if (shape_of(sketch, at)[1] % shard_group(sketch, sketch.units[unit]) != 0)
      return "FS-ERR-1: other dimensions than the first are cut evenly";
  }
  // to_empty gives each place of a tied parameter memory of its own.
  if (sketch.meta && has_block(sketch, BlockKind::tied)) return "a tie would come undone";
  if (sketch.meta && (!sketch.frozen.empty() || (fsdp1 && !sketch.ignored.empty())))
    return "FP-INIT-3: units give values to what they own";
  if (sketch.synced && (!fsdp1 || sketch.meta || !sketch.ignored.empty()))
    return "FP-INIT-2: units give the first rank's values to what they own";
  // What is not offloaded and what is need optimizers of their own.
  if (sketch.offload && sketch.meta && !fsdp1) return "FS-ERR-1: memory is given where the model computes";
  if (sketch.offload && !sketch.ignored.empty()) return "ignored parameters are not offloaded";
  if (sketch.host_inputs && !sketch.offload) return "where all memory is the host's";
  if (sketch.comm_hook != 0 && (sketch.api != "fsdp" || !sketch.mesh.empty() || sketch.world == 1))
    return "FP-HOOK-4: not over replicas";
  // What no unit holds goes another way on every rank, and stands in a checkpoint once.
  if (sketch.resumed && std::any_of(parameters.begin(), parameters.end(), [&](const ParameterInfo& each) {
        return unit_of(sketch, each.at) < 0 && !is_frozen(sketch, each.at);
      }))
    return "ranks part, and a checkpoint is of all of them";
  if (sketch.resumed && !sketch.ignored.empty() && has_aside(sketch, AsideKind::set_requires_grad))
    return "what is ignored may be trained after all";
  if (keeps_low_gradients(sketch) && sketch.momentum != 0 &&
      (sketch.resumed || has_aside(sketch, AsideKind::optimizer_state)))
    return "a state of a small dtype is cast to its parameter's when it is loaded";
  // Zeros, which another model's original parameters get; the reference knows of none.
  const bool flat = std::any_of(sketch.units.begin(), sketch.units.end(), [&](const Unit& unit) {
    return fsdp1 && !original_parameters(sketch, unit);
  });
  if (sketch.resumed && has_optimizer_state(sketch) && flat &&
      (leaves_layers_out(sketch) || has_aside(sketch, AsideKind::set_requires_grad)))
    return "a flat parameter has a state of members that never had a gradient";
  for (const Unit& unit : sketch.units)
    if ((fsdp1 || low_precision(sketch)) && (unit.divide_factor != 0 || unit.force_sum || unit.hook != 0))
      return "a control of fully_shard";
  if (sketch.async_gathers && fsdp1) return "a control of fully_shard";
  if (sketch.prefetch != Prefetch::by_itself && (fsdp1 || chain_of_layers(sketch).size() < 3))
    return "FS-PREFETCH-3: lists are for units that run one after another";
  // What is recomputed gets its inputs as they were before the unit cast them.
  if (low_precision(sketch) && recomputes(sketch)) return "recomputed in a small dtype";
  // A buffer is not cast by fully_shard, and by FSDP1 with a dtype of its own alone.
  if (has_block(sketch, BlockKind::shift) && low_precision(sketch) && !buffers_follow(sketch))
    return "FS-MP-8, FP-MP-9: buffers keep their dtype";
  for (const ParameterAt& each : sketch.ignored)
    if (each.module.block >= 0 && sketch.blocks[each.module.block].kind == BlockKind::tied)
      return "a tensor that is ignored under one of its names";
  for (const Iteration& iteration : sketch.iterations)
    for (const MicroBatch& each : iteration.micro_batches)
      if (each.input_gradient && (!sketch.frozen.empty() || has_aside(sketch, AsideKind::set_requires_grad)))
        return "a backward for the sake of an input, in which no parameter may be trained";
  if (sketch.guard && (!sketch.frozen.empty() || has_aside(sketch, AsideKind::set_requires_grad)))
    return "a guard that no gradient may reach";
  return std::nullopt;
}

std::optional<std::string> bad_scaler(const Sketch& sketch) {
  if (sketch.scale != 0 && keeps_low_gradients(sketch)) return "scaled gradients of a small dtype";
  for (const Iteration& iteration : sketch.iterations) {
    if (sketch.scale == 0 && (iteration.unscale || !iteration.overflow.empty())) return "there is no scaler";
    if (sketch.scale == 0) continue;
    // Gradients of two scales do not add up, and what is not stepped with is not divided.
    if (!iteration.step || iteration.zero_grad == ZeroGrad::keep)
      return "FS-SCALER-1: one scale for a gradient";
    if (iteration.clip != Clip::none && !iteration.unscale) return "a norm of scaled gradients";
    if (iteration.overflow.empty()) continue;
    if (iteration.clip != Clip::none || iteration.unscale) return "what is infinite is measured by nobody";
    if (!sketch.ignored.empty()) return "an ignored gradient";
    for (const Unit& unit : sketch.units)
      if (is_fsdp1(sketch) && !original_parameters(sketch, unit)) return "no gradient of one parameter";
  }
  return std::nullopt;
}

// A model, or factors of it, in another dtype than float32.
std::optional<std::string> bad_dtypes(const Sketch& sketch) {
  const bool mixed = !sketch.halves.empty();
  const bool widens = !low_precision(sketch) && !has_small_dtype(sketch) && sketch.second == "bfloat16";
  if (!sketch.second.empty() && sketch.second != sketch.dtype && !widens)
    return "a sum of inputs that is of another dtype than the first layer";
  if (sketch.dtype == "float32" && !mixed) {
    if (sketch.cast_late) return "no cast";
    return std::nullopt;
  }
  if (low_precision(sketch) || sketch.meta) return "one story about dtypes at a time";
  // A scaler of float16's own refuses its gradients, and what a scaled product of two dtypes is in is autograd's.
  if (sketch.scale != 0 && (mixed || sketch.dtype == "float16")) return "scaled gradients of a small dtype";
  if (sketch.dtype != "float32" && (mixed || sketch.x_dtype != sketch.dtype))
    return "a layer and its input are of one dtype";
  for (const Iteration& iteration : sketch.iterations)
    for (const MicroBatch& each : iteration.micro_batches)
      if ((mixed || has_small_dtype(sketch)) &&
          (iteration.clip == Clip::sum || has_aside(sketch, AsideKind::clip) || each.loud))
        return "a sum that a small dtype cannot hold";
  if (!mixed) return std::nullopt;
  const bool clips = std::any_of(sketch.iterations.begin(), sketch.iterations.end(),
                                 [](const Iteration& each) { return each.clip != Clip::none; });
  if (clips && (leaves_layers_out(sketch) || has_block(sketch, BlockKind::empty)))
    return "no clause says whether what has no gradient counts in the dtype of a norm";
  if (sketch.resumed || has_aside(sketch, AsideKind::set_requires_grad) || !sketch.auto_wrap.is_null())
    return "FS-DTYPE-1: what is trained in a unit is of one dtype";
  const std::vector<ParameterInfo> all = parameters_of(sketch);
  for (const ParameterAt& half : sketch.halves) {
    if (half.name != "gain" || unit_of(sketch, half) < 0) return "products of anything else are not float32";
    if (std::none_of(all.begin(), all.end(), [&](const auto& each) { return each.at == half; }))
      return "names no parameter";
  }
  for (const ParameterInfo& one : all)
    for (const ParameterInfo& other : all) {
      if (unit_of(sketch, one.at) < 0 || unit_of(sketch, one.at) != unit_of(sketch, other.at)) continue;
      const auto is_half = [&](const ParameterAt& at) {
        return std::find(sketch.halves.begin(), sketch.halves.end(), at) != sketch.halves.end();
      };
      const bool may_differ = !is_fsdp1(sketch) && (is_frozen(sketch, one.at) || is_frozen(sketch, other.at));
      if (is_half(one.at) != is_half(other.at) && !may_differ)
        return "FS-DTYPE-1, FP-DTYPE-1: one dtype in a unit";
    }
  return std::nullopt;
}

// Of what has no gradient a flat parameter has one of zeros.
std::optional<std::string> bad_decay(const Sketch& sketch) {
  if (sketch.weight_decay == 0 || !is_fsdp1(sketch)) return std::nullopt;
  if (!sketch.frozen.empty() || leaves_layers_out(sketch) || has_aside(sketch, AsideKind::set_requires_grad))
    return "decay without a gradient";
  return std::nullopt;
}

// The optimizer steps with each gradient that is there, so that whatever looks at gradients finds none.
std::optional<std::string> bad_step_in_backward(const Sketch& sketch) {
  if (!sketch.step_in_backward) return std::nullopt;
  if (is_fsdp1(sketch) || sketch.scale != 0 || !sketch.frozen.empty() || !sketch.ignored.empty() ||
      leaves_layers_out(sketch) || has_block(sketch, BlockKind::empty) ||
      has_block(sketch, BlockKind::twice) || has_aside(sketch, AsideKind::set_requires_grad) ||
      has_aside(sketch, AsideKind::failed_backward) || has_aside(sketch, AsideKind::optimizer_state))
    return "FS-HOOK-1: each parameter once for each reduction";
  for (const Iteration& iteration : sketch.iterations) {
    if (iteration.clip != Clip::none || iteration.step || !iteration.before_step.empty())
      return "the optimizer has stepped";
    for (const MicroBatch& each : iteration.micro_batches)
      if (!each.reshard_after_backward || !each.last_backward || !each.all_reduce)
        return "what is whole when its optimizer steps is stale";
  }
  return std::nullopt;
}

// A unit that is called, or asked for its state, alone.
std::optional<std::string> bad_part(const Sketch& sketch, const Aside& aside) {
  if (!sketch.auto_wrap.is_null()) return "a policy alone knows its units";
  if (aside.at.module.is_root()) return "the whole model";
  if (aside.kind == AsideKind::part_forward && low_precision(sketch))
    return "FP-MP-4: the root alone casts inputs";
  // Of several the last frees what the first has gathered.
  const bool is_unit = std::any_of(sketch.units.begin(), sketch.units.end(), [&](const Unit& unit) {
    return unit.modules == std::vector{aside.at.module};
  });
  return is_unit ? std::nullopt : std::optional<std::string>("FS-STATE-10: a part is a unit");
}

// A second model, of the same plan and with the values that this one began with.
std::optional<std::string> bad_foreign_state(const Sketch& sketch) {
  if (sketch.api == "composable") return "no root yet";
  if (sketch.meta || sketch.synced || sketch.offload || !sketch.frozen.empty() || !sketch.ignored.empty() ||
      !sketch.halves.empty() || has_aside(sketch, AsideKind::set_requires_grad))
    return "a second model that is made otherwise";
  return std::nullopt;
}

std::optional<std::string> bad_aside(const Sketch& sketch, const Aside& aside, bool first_of_iteration,
                                     bool last_of_list) {
  const auto named = [&] {
    const std::vector<ParameterInfo> all = parameters_of(sketch);
    return std::any_of(all.begin(), all.end(), [&](const auto& each) { return takes(aside.at, each.at); });
  };
  const bool fsdp1 = is_fsdp1(sketch);
  const bool looks_only = aside.kind == AsideKind::eval_forward || aside.kind == AsideKind::no_grad_forward ||
                          aside.kind == AsideKind::part_forward;
  const bool of_gradients =
      aside.kind == AsideKind::drop_gradients || aside.kind == AsideKind::assign_gradient;
  // Between micro-batches gradients wait unreduced or parameters whole: what then happens to them when
  // somebody changes or reloads parameters is not said anywhere.
  if (!first_of_iteration && !looks_only && !of_gradients) return "only between iterations";
  switch (aside.kind) {
    case AsideKind::unshard:
      // Parameters that were changed after this would be stale.
      if (!last_of_list) return "a gathered unit must be used next";
      [[fallthrough]];
    case AsideKind::unshard_and_reshard:
    case AsideKind::set_reshard_after_forward: {
      if (fsdp1) return "a control of fully_shard";
      if (aside.kind == AsideKind::set_reshard_after_forward && aside.at.module.is_root())
        return std::nullopt;
      const bool is_unit = std::any_of(sketch.units.begin(), sketch.units.end(), [&](const Unit& unit) {
        return std::find(unit.modules.begin(), unit.modules.end(), aside.at.module) != unit.modules.end();
      });
      return is_unit ? std::nullopt : std::optional<std::string>("only units have controls");
    }
    case AsideKind::summon_mutate:
      if (!fsdp1 || aside.at.name.empty() || !named()) return "a parameter of FSDP1";
      return std::nullopt;
    case AsideKind::full_state:
    case AsideKind::sharded_state:
      if (aside.at.name.empty()) return std::nullopt;
      [[fallthrough]];
    case AsideKind::replace: {
      if (!fsdp1 || aside.at.name.empty() || !named()) return "a parameter of FSDP1";
      const int unit = unit_of(sketch, aside.at);
      if (unit < 0 || !original_parameters(sketch, sketch.units[unit]))
        return "FP-WB-1: with use_orig_params";
      return std::nullopt;
    }
    case AsideKind::part_forward:
    case AsideKind::part_state:
      return bad_part(sketch, aside);
    case AsideKind::foreign_state:
      return bad_foreign_state(sketch);
    case AsideKind::refused_scope:
      return sketch.api == "fsdp" ? std::nullopt : std::optional<std::string>("a scope of fsdp");
    case AsideKind::write:
    case AsideKind::write_gradient: {
      if (aside.at.name.empty() || !named()) return "a parameter";
      const int unit = unit_of(sketch, aside.at);
      if (unit < 0 || (fsdp1 && !original_parameters(sketch, sketch.units[unit])))
        return "FP-FLAT-3: a member of a flat parameter is not shown";
      return std::nullopt;
    }
    case AsideKind::drop_gradients:
      return fsdp1 ? std::nullopt : std::optional<std::string>("what waits in fully_shard is no optimizer's");
    case AsideKind::assign_gradient: {
      const int unit = unit_of(sketch, aside.at);
      if (!fsdp1 || !has_gradient(sketch, aside.at) || unit < 0 ||
          !original_parameters(sketch, sketch.units[unit]))
        return "FP-WB-8: with use_orig_params";
      return std::nullopt;
    }
    case AsideKind::local_state:
      // PyTorch's of original parameters do not load.
      for (const Unit& unit : sketch.units)
        if (!fsdp1 || original_parameters(sketch, unit)) return "FP-STATE-10: parts of flat parameters";
      return std::nullopt;
    case AsideKind::first_rank_state:
      // The first rank of each shard group has it there.
      if (fsdp1 && !sketch.mesh.empty()) return "FP-STATE-12: more than one first rank";
      if (!sketch.ignored.empty()) return "an ignored parameter is each rank's own until it is broadcast";
      return std::nullopt;
    case AsideKind::optimizer_state:
      if (sketch.momentum == 0) return "an optimizer without state";
      return std::nullopt;
    case AsideKind::summon:
      if (!fsdp1 || aside.at.name.empty() || !named()) return "a parameter of FSDP1";
      return bad_scope(sketch, aside);
    case AsideKind::clip:
      if (sketch.dtype != "float32" && !fsdp1) return "no clause says in which dtype a norm of nothing is";
      return std::nullopt;
    case AsideKind::failed_forward:
      // Everything that is no matrix might take a width of one for all widths.
      if (sketch.in < 2) return "no batch is too wide";
      return std::nullopt;
    case AsideKind::failed_backward:
      if (!sketch.guard) return "nobody looks whether gradients are finite";
      if (sketch.full_precision_in_eval &&
          !any_micro_batch(sketch, [](const MicroBatch& each) { return !each.eval; }))
        return "nobody knows whether it computes in a low precision";
      if (std::none_of(sketch.blocks.begin(), sketch.blocks.end(), [](const Block& block) {
            return block.kind != BlockKind::relu && block.kind != BlockKind::shift &&
                   block.kind != BlockKind::empty && block.kind != BlockKind::side;
          }))
        return "nothing asks for gradients";
      return std::nullopt;
    case AsideKind::set_requires_grad:
      if (!named()) return "names no parameter";
      // A flat parameter that is no original one has one flag of its own.
      for (const Unit& unit : sketch.units)
        if (fsdp1 && !original_parameters(sketch, unit)) return "WR-5";
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

bool saves_all(AsideKind kind) {
  return kind == AsideKind::full_state || kind == AsideKind::sharded_state;
}

// A forward that no backward follows may leave parameters whole, and fully_shard forgets with the next shard what a whole
// one was told, and FSDP1 does not see that another tensor has taken its place.
bool changes_whole_parameters(const Sketch& sketch, const MicroBatch& micro_batch) {
  const auto changes = [&](const Aside& each) {
    if (!is_fsdp1(sketch)) return each.kind == AsideKind::set_requires_grad;
    return each.kind == AsideKind::replace || (saves_all(each.kind) && !each.at.name.empty());
  };
  bool whole = false;
  for (const Aside& each : micro_batch.before) {
    if (changes(each) && whole) return true;
    whole = whole || leaves_whole(each.kind);
  }
  return false;
}

// PyTorch's composable units take whoever is asked for its state before the first forward for the root.
bool asks_inner_units_first(const Sketch& sketch) {
  const auto& before = sketch.iterations.front().micro_batches.front().before;
  return sketch.api == "composable" && (sketch.units.size() > 1 || !sketch.auto_wrap.is_null()) &&
         std::any_of(before.begin(), before.end(), [](const Aside& each) {
           return saves_all(each.kind) || each.kind == AsideKind::first_rank_state ||
                  each.kind == AsideKind::summon;
         });
}

// Whoever is called, or asked for its state, before the root has run takes itself for the root.
bool takes_part_for_root(const Sketch& sketch) {
  for (const Aside& each : sketch.iterations.front().micro_batches.front().before) {
    if (each.kind == AsideKind::part_forward || each.kind == AsideKind::part_state ||
        each.options.contains("part"))
      return true;
    if (each.kind == AsideKind::eval_forward || each.kind == AsideKind::no_grad_forward) return false;
  }
  return false;
}

// What a frozen member of a flat parameter shows of a gradient that was not reduced: PyTorch shows it, and ours does not.
bool freezes_unreduced(const Sketch& sketch) {
  if (!is_fsdp1(sketch)) return false;
  bool unreduced = false, frozen = !sketch.frozen.empty();
  for (const Iteration& iteration : sketch.iterations)
    for (const MicroBatch& each : iteration.micro_batches) {
      unreduced = unreduced || !each.sync;
      for (const Aside& aside : each.before) frozen = frozen || aside.kind == AsideKind::set_requires_grad;
    }
  return unreduced && frozen;
}

// PyTorch's FSDP1 drops the gradient of a unit that is frozen as a whole in its next pass, and ours keeps it.
bool freezes_beside_gradients(const Sketch& sketch, const Iteration& iteration) {
  const auto& before = iteration.micro_batches.front().before;
  return is_fsdp1(sketch) && &iteration != &sketch.iterations.front() &&
         iteration.zero_grad != ZeroGrad::none &&
         std::any_of(before.begin(), before.end(),
                     [](const Aside& each) { return each.kind == AsideKind::set_requires_grad; });
}

// Between backward and step, with gradients that are there.
std::optional<std::string> bad_before_step(const Sketch& sketch, const Iteration& iteration) {
  for (std::size_t i = 0; i < iteration.before_step.size(); ++i) {
    const Aside& aside = iteration.before_step[i];
    if (!iteration.step) return "there is no step";
    if (aside.kind == AsideKind::summon && aside.value &&
        (!has_gradient(sketch, aside.at) || !aside.options.value("with_grads", false) ||
         !aside.options.value("recurse", true) || aside.options.value("rank0_only", false)))
      return "no gradient in sight";
    switch (aside.kind) {
      case AsideKind::full_state:
      case AsideKind::sharded_state:
      case AsideKind::first_rank_state:
      case AsideKind::summon:
        if (aside.options.contains("part")) return "no gradient in sight";
        break;
      case AsideKind::write_gradient:
        if (!has_gradient(sketch, aside.at)) return "no gradient";
        break;
      case AsideKind::failed_forward:
        // What units show that are whole after a forward is no longer what the optimizer steps.
        for (const Unit& unit : sketch.units)
          if (is_fsdp1(sketch) && original_parameters(sketch, unit) && !frees_after_forward(sketch, unit))
            return "whole parameters in sight when the optimizer steps";
        break;
      default:
        return "only before a forward";
    }
    if (auto bad = bad_aside(sketch, aside, true, i + 1 == iteration.before_step.size())) return bad;
  }
  return std::nullopt;
}

std::optional<std::string> bad_optimizer_state(const Sketch& sketch, const Iteration& iteration) {
  const auto& before = iteration.micro_batches.front().before;
  const auto saved = std::find_if(before.begin(), before.end(),
                                  [](const Aside& each) { return each.kind == AsideKind::optimizer_state; });
  if (saved == before.end()) return std::nullopt;
  // A check of the model's output raises before backward has reached any unit, or all but the root.
  const bool failed = std::any_of(before.begin(), saved,
                                  [](const Aside& each) { return each.kind == AsideKind::failed_backward; });
  const bool left_whole =
      failed && (!sketch.root_gain ||
                 std::any_of(sketch.units.begin(), sketch.units.end(),
                             [&](const Unit& unit) { return !frees_after_forward(sketch, unit); }));
  if (is_fsdp1(sketch) && left_whole && !saved->options.contains("same"))
    return "a new optimizer of parameters that forward has left whole";
  // A scaler has one optimizer.
  if (sketch.scale != 0) return "an optimizer takes the place of another";
  for (const Iteration& earlier : sketch.iterations) {
    if (&earlier == &iteration) break;
    if (earlier.step) return std::nullopt;
  }
  return "an optimizer that has not stepped has no state";
}

// Over the shards, at least, by every micro-batch before this one; what waits for replicas is dropped with a backward that fails
// (FS-AFTER-3).
bool all_reduced(const Iteration& iteration, const MicroBatch& micro_batch) {
  return std::all_of(iteration.micro_batches.data(), &micro_batch,
                     [](const MicroBatch& each) { return each.sync; });
}

// What waits from a pass of one precision is added to by a pass of another.
bool waits_between_precisions(const Sketch& sketch, const Iteration& iteration) {
  if (!sketch.full_precision_in_eval) return false;
  const auto& all = iteration.micro_batches;
  return std::any_of(all.begin(), all.end(), [](const MicroBatch& each) { return !each.sync; }) &&
         std::any_of(all.begin(), all.end(),
                     [&](const MicroBatch& each) { return each.eval != all.front().eval; });
}

// What is done to gradients between micro-batches.
std::optional<std::string> bad_between(const Sketch& sketch, const Iteration& iteration,
                                       const MicroBatch& micro_batch, const Aside& aside) {
  if (aside.kind != AsideKind::drop_gradients && aside.kind != AsideKind::assign_gradient)
    return std::nullopt;
  const MicroBatch* first = iteration.micro_batches.data();
  if (&micro_batch == first) return "there are none yet";
  const auto synced = [](const MicroBatch& each) { return each.sync; };
  if (std::any_of(first, &micro_batch, synced) &&
      (aside.kind == AsideKind::assign_gradient || !std::all_of(first, &micro_batch, synced)))
    return "FP-SYNC-4: some of them wait, and others do not";
  if (iteration.zero_grad == ZeroGrad::keep || sketch.scale != 0 || !sketch.ignored.empty())
    return "gradients of an earlier iteration are there, too";
  return std::nullopt;
}

// The norm of a rank without any gradient is in float32, whatever the others have.
bool has_norm_of_one_dtype(const Sketch& sketch) {
  if (!is_fsdp1(sketch) ||
      (sketch.dtype == "float32" && sketch.halves.empty() && !keeps_low_gradients(sketch)))
    return true;
  const auto is_half = [&](const ParameterAt& at) {
    return std::find(sketch.halves.begin(), sketch.halves.end(), at) != sketch.halves.end();
  };
  for (std::size_t i = 0; i < sketch.units.size(); ++i) {
    if (!original_parameters(sketch, sketch.units[i])) return true;
    int elements = 0;
    for (const ParameterInfo& each : parameters_of(sketch))
      if (unit_of(sketch, each.at) == static_cast<int>(i) && has_gradient(sketch, each.at) &&
          !is_half(each.at))
        elements += elements_of(sketch, each.at);
    if (elements >= flat_alignment * shard_group(sketch, sketch.units[i])) return true;
  }
  return false;
}

// Each rank's own gradients of what is ignored count in its norm.
bool has_method_to_clip(const Sketch& sketch) {
  return sketch.api == "fsdp" || (sketch.api == "fully_shard" && sketch.ignored.empty());
}

// Every forward runs the same units in one order, whoever looks at it.
std::optional<std::string> bad_order_check(const Sketch& sketch) {
  if (!sketch.order_checked) return std::nullopt;
  if (!is_fsdp1(sketch)) return "a check of FSDP1";
  for (const AsideKind kind : {AsideKind::no_grad_forward, AsideKind::part_forward, AsideKind::failed_forward,
                               AsideKind::failed_backward})
    if (has_aside(sketch, kind)) return "another order than the first";
  if (recomputes(sketch) || any_micro_batch(sketch, [](const MicroBatch& each) { return each.eval; }))
    return "another order than the first";
  return std::nullopt;
}

std::optional<std::string> bad_clip_alone(const Sketch& sketch, const Iteration& iteration) {
  const auto& before = iteration.micro_batches.front().before;
  if (std::none_of(before.begin(), before.end(),
                   [](const Aside& each) { return each.kind == AsideKind::clip; }))
    return std::nullopt;
  if (!has_method_to_clip(sketch)) return "a norm over all ranks";
  if (sketch.step_in_backward) return "the optimizer has stepped";
  if (!has_norm_of_one_dtype(sketch)) return "FP-CLIP-3: a rank without gradients";
  for (const Iteration& earlier : sketch.iterations)
    if (!earlier.overflow.empty()) return "what is infinite is measured by nobody";
  return std::nullopt;
}

// A second output, and losses of one of the two.
std::optional<std::string> bad_side(const Sketch& sketch) {
  for (const Block& block : sketch.blocks)
    if (block.kind == BlockKind::side && &block != &sketch.blocks.back()) return "a side is the last block";
  const std::vector<ParameterInfo> all = parameters_of(sketch);
  for (const Iteration& iteration : sketch.iterations) {
    bool waits = false;
    for (const MicroBatch& each : iteration.micro_batches) {
      if (each.uses != Uses::both && !has_side(sketch)) return "there is no side";
      if (each.uses == Uses::side && (!sketch.frozen.empty() || !sketch.ignored.empty() || sketch.guard ||
                                      has_aside(sketch, AsideKind::set_requires_grad)))
        return "a side that nothing may be trained in";
      if (each.uses != Uses::both && is_fsdp1(sketch)) {
        if (sketch.momentum != 0 && !original_parameters(sketch, sketch.units.back()))
          return "a flat parameter steps as a whole";
        // What waits in a unit of FSDP1 that a backward does not reach is not reduced by it.
        std::set<int> holding, reached;
        for (const ParameterInfo& parameter : all) {
          holding.insert(unit_of(sketch, parameter.at));
          if (reaches(each.uses, sketch, parameter)) reached.insert(unit_of(sketch, parameter.at));
        }
        if (waits && each.sync && (holding != reached || !sketch.auto_wrap.is_null()))
          return "FP-SYNC-2: gradients that wait for a backward of their unit";
      }
      waits = !each.sync;
    }
  }
  return std::nullopt;
}

std::optional<std::string> bad_program(const Sketch& sketch) {
  if (sketch.iterations.empty()) return "nothing to do";
  if (auto bad = bad_scaler(sketch)) return bad;
  if (auto bad = bad_dtypes(sketch)) return bad;
  if (auto bad = bad_decay(sketch)) return bad;
  if (auto bad = bad_side(sketch)) return bad;
  if (auto bad = bad_order_check(sketch)) return bad;
  if (auto bad = bad_step_in_backward(sketch)) return bad;
  if (freezes_unreduced(sketch)) return "frozen members and gradients that are not reduced";
  for (const Iteration& iteration : sketch.iterations) {
    if (iteration.micro_batches.empty()) return "nothing to do";
    if (iteration.late && iteration.zero_grad == ZeroGrad::keep) return "nothing is set to zero";
    if (&iteration == &sketch.iterations.front() &&
        (asks_inner_units_first(sketch) || takes_part_for_root(sketch)))
      return "no root yet";
    if (auto bad = bad_before_step(sketch, iteration)) return bad;
    if (auto bad = bad_optimizer_state(sketch, iteration)) return bad;
    if (freezes_beside_gradients(sketch, iteration)) return "a unit is frozen and has a gradient";
    if (auto bad = bad_clip_alone(sketch, iteration)) return bad;
    if (waits_between_precisions(sketch, iteration)) return "gradients of two precisions in one sum";
    const MicroBatch& last = iteration.micro_batches.back();
    // What stays whole over an optimizer's step is stale afterwards, and a gradient that waits is seen by no
    // optimizer.
    if (!last.sync || !last.reshard_after_backward || !last.last_backward || !last.all_reduce)
      return "the last micro-batch of an iteration is synchronised and leaves shards";
    // A composable unit has no such method, and a gradient that is this rank's own gives no norm of all.
    if (iteration.clip != Clip::none && !has_method_to_clip(sketch)) return "a norm over all ranks";
    if (iteration.clip != Clip::none && !has_norm_of_one_dtype(sketch))
      return "FP-CLIP-3: a rank without gradients";
    for (const MicroBatch& each : iteration.micro_batches) {
      if (is_fsdp1(sketch) && (!each.reshard_after_backward || !each.last_backward || !each.all_reduce))
        return "a control of fully_shard";
      if (each.nested && (!is_fsdp1(sketch) || each.sync)) return "no scope";
      if (changes_whole_parameters(sketch, each)) return "a whole parameter is changed";
      if (each.loud && !sums_in_full_precision(sketch))
        return "what is added up rounds, in which order nobody says";
      if (each.looked_at && low_precision(sketch))
        return "what is whole is shown in the dtype it computes in";
      // Neither does PyTorch's DTensor: it says which rows a piece would hold if they were cut evenly.
      if (each.looked_at && std::any_of(sketch.units.begin(), sketch.units.end(), [](const Unit& unit) {
            return unit.settings.value("reshard_after_forward", Json()).is_number_integer();
          }))
        return "no clause says which rows lie in a smaller group's piece where they do not divide";
      bool whole = false;
      for (std::size_t i = 0; i < each.before.size(); ++i) {
        const Json& options = each.before[i].options;
        if (each.before[i].kind == AsideKind::summon && whole &&
            (!options.value("recurse", true) || options.contains("part")))
          return "a scope of some units leaves others as a forward has shown them";
        if (each.before[i].kind == AsideKind::write_gradient) return "only before a step";
        if (auto bad = bad_between(sketch, iteration, each, each.before[i])) return bad;
        if (each.before[i].kind == AsideKind::write && whole)
          return "what is whole is no optimizer's, and what becomes of it no clause says";
        if (each.before[i].kind == AsideKind::clip && whole)
          return "gradients of shards, which a whole unit does not show";
        whole = whole || leaves_whole(each.before[i].kind);
        const bool nothing_waits =
            &each == &iteration.micro_batches.front() ||
            (each.before[i].kind == AsideKind::failed_backward && all_reduced(iteration, each) &&
             sketch.root_gain);  // the model's backward has begun when the guard, further inside, raises
        if (auto bad = bad_aside(sketch, each.before[i], nothing_waits, i + 1 == each.before.size()))
          return bad;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

int width_before(const Sketch& sketch, std::size_t block) {
  int width = sketch.in;
  for (std::size_t i = 0; i < block; ++i)
    if (!keeps_width(sketch.blocks[i].kind)) width = sketch.blocks[i].width;
  return width;
}

int width_into(const Sketch& sketch, const ModuleAt& module) {
  if (module.is_root()) return sketch.in;
  const Block& block = sketch.blocks[module.block];
  if (block.kind == BlockKind::side) return sketch.in;
  return block.kind == BlockKind::nested && module.inner == 1
             ? block.middle
             : width_before(sketch, static_cast<std::size_t>(module.block));
}

std::string inner_name(const Block& block, int inner) {
  return inner_names(block).at(inner);
}

int runs_of(const Sketch& sketch, const ModuleAt& module) {
  if (module.is_root() || module.inner < 0) return 1;
  const BlockKind kind = sketch.blocks[module.block].kind;
  if (kind == BlockKind::twice) return 2;
  return kind == BlockKind::spare && module.inner == 1 ? 0 : 1;
}

std::string class_of(const Sketch& sketch, const ModuleAt& module) {
  if (module.is_root()) return calls_root_as_graph(sketch) ? "Graph" : "Sequential";
  const Block& block = sketch.blocks[module.block];
  if (module.inner >= 0 || block.kind == BlockKind::linear || block.kind == BlockKind::side) return "Linear";
  if (block.kind == BlockKind::relu) return "ReLU";
  return block.kind == BlockKind::nested ? "Sequential" : "Graph";
}

std::string path_of(const Sketch& sketch, const ModuleAt& module) {
  if (module.is_root()) return "";
  std::string path = std::to_string(module.block);
  if (module.inner >= 0) path += "." + inner_name(sketch.blocks[module.block], module.inner);
  return path;
}

std::string name_of(const Sketch& sketch, const ParameterAt& parameter) {
  const std::string path = path_of(sketch, parameter.module);
  return path.empty() ? parameter.name : path + "." + parameter.name;
}

std::vector<ModuleAt> unit_candidates(const Sketch& sketch) {
  std::vector<ModuleAt> found;
  for (int i = 0; i < static_cast<int>(sketch.blocks.size()); ++i) {
    const Block& block = sketch.blocks[i];
    const int inner = static_cast<int>(inner_names(block).size());
    for (int k = 0; block.kind != BlockKind::tied && k < inner; ++k) found.push_back({i, k});
    found.push_back({i, -1});
  }
  found.push_back({});
  return found;
}

std::vector<ParameterInfo> parameters_of(const Sketch& sketch) {
  std::vector<ParameterInfo> found;
  const auto add = [&](const ModuleAt& module, const char* name, bool used) {
    found.push_back({{module, name}, name_of(sketch, {module, name}), module.block, used});
  };
  if (sketch.root_gain) add({}, "gain", true);
  for (int i = 0; i < static_cast<int>(sketch.blocks.size()); ++i) {
    const Block& block = sketch.blocks[i];
    if (block.kind == BlockKind::relu || block.kind == BlockKind::shift) continue;
    if (block.kind == BlockKind::gain || block.kind == BlockKind::empty) {
      const bool used = block.kind == BlockKind::gain;
      add({i, -1}, used ? "gain" : "empty", used);
      continue;
    }
    if (block.kind == BlockKind::linear || block.kind == BlockKind::side) {
      add({i, -1}, "weight", true);
      if (block.bias) add({i, -1}, "bias", true);
      continue;
    }
    const int inner = static_cast<int>(inner_names(block).size());
    for (int k = 0; k < inner; ++k) {
      const bool used = block.kind != BlockKind::spare || k == 0;
      if (block.kind != BlockKind::tied || k == 0) add({i, k}, "weight", used);
      if (block.bias) add({i, k}, "bias", used);
    }
  }
  return found;
}

bool holds(const ModuleAt& outer, const ModuleAt& inner) {
  return outer.is_root() || (outer.block == inner.block && (outer.inner < 0 || outer.inner == inner.inner));
}

bool takes(const ParameterAt& pattern, const ParameterAt& parameter) {
  return pattern.name.empty() ? holds(pattern.module, parameter.module) : pattern == parameter;
}

int unit_of(const Sketch& sketch, const ParameterAt& parameter) {
  for (const ParameterAt& pattern : sketch.ignored)
    if (takes(pattern, parameter)) return -1;
  for (std::size_t i = 0; i < sketch.units.size(); ++i)  // inner before outer
    for (const ModuleAt& module : sketch.units[i].modules)
      if (holds(module, parameter.module)) return static_cast<int>(i);
  return -1;
}

bool is_sharded(const Sketch& sketch, const Unit& unit) {
  return unit.settings.value("sharding_strategy", "") != "NO_SHARD" && shard_group(sketch, unit) > 1;
}

int shard_group(const Sketch& sketch, const Unit& unit) {
  const bool on_mesh = !sketch.mesh.empty() && (!is_fsdp1(sketch) || is_hybrid(unit));
  return on_mesh ? sketch.mesh[1] : sketch.world;
}

bool original_parameters(const Sketch& sketch, const Unit& unit) {
  return sketch.api == "composable" || unit.settings.value("use_orig_params", false);
}

bool has_gradient(const Sketch& sketch, const ParameterAt& parameter) {
  if (has_aside(sketch, AsideKind::set_requires_grad) || unit_of(sketch, parameter) < 0 ||
      is_frozen(sketch, parameter))
    return false;
  const std::vector<ParameterInfo> all = parameters_of(sketch);
  return std::any_of(all.begin(), all.end(), [&](const ParameterInfo& each) {
    if (each.at != parameter) return false;
    for (const Iteration& iteration : sketch.iterations)
      for (const MicroBatch& one : iteration.micro_batches)
        if (!reaches(one.uses, sketch, each)) return false;
    return each.used;
  });
}

bool any_aside(const Sketch& sketch, const std::function<bool(const Aside&)>& is_one) {
  const auto in = [&](const std::vector<Aside>& asides) {
    return std::any_of(asides.begin(), asides.end(), is_one);
  };
  return any_micro_batch(sketch, [&](const MicroBatch& each) { return in(each.before); }) ||
         std::any_of(sketch.iterations.begin(), sketch.iterations.end(),
                     [&](const Iteration& each) { return in(each.before_step); });
}

bool any_micro_batch(const Sketch& sketch, const std::function<bool(const MicroBatch&)>& is_one) {
  return std::any_of(sketch.iterations.begin(), sketch.iterations.end(), [&](const Iteration& iteration) {
    return std::any_of(iteration.micro_batches.begin(), iteration.micro_batches.end(), is_one);
  });
}

bool has_aside(const Sketch& sketch, AsideKind kind) {
  return any_aside(sketch, [&](const Aside& each) { return each.kind == kind; });
}

bool has_block(const Sketch& sketch, BlockKind kind) {
  return std::any_of(sketch.blocks.begin(), sketch.blocks.end(),
                     [&](const Block& block) { return block.kind == kind; });
}

bool has_side(const Sketch& sketch) {
  return has_block(sketch, BlockKind::side);
}

bool leaves_layers_out(const Sketch& sketch) {
  return has_block(sketch, BlockKind::spare) || has_side(sketch);
}

bool is_frozen(const Sketch& sketch, const ParameterAt& at) {
  return std::any_of(sketch.frozen.begin(), sketch.frozen.end(),
                     [&](const ParameterAt& pattern) { return takes(pattern, at); });
}

bool reaches(Uses uses, const Sketch& sketch, const ParameterInfo& parameter) {
  const bool of_side =
      !parameter.at.module.is_root() && sketch.blocks[parameter.at.module.block].kind == BlockKind::side;
  return parameter.used && (uses == Uses::both || of_side == (uses == Uses::side));
}

bool recomputes(const Sketch& sketch) {
  return std::any_of(sketch.blocks.begin(), sketch.blocks.end(),
                     [](const Block& block) { return block.recompute; });
}

bool has_optimizer_state(const Sketch& sketch) {
  return sketch.momentum != 0 &&
         std::any_of(sketch.iterations.begin(), sketch.iterations.end(),
                     [](const Iteration& each) { return each.step && each.overflow.empty(); });
}

bool calls_root_as_graph(const Sketch& sketch) {
  return sketch.root_gain || sketch.guard || !sketch.second.empty() || has_side(sketch) || recomputes(sketch);
}

bool is_fsdp1(const Sketch& sketch) {
  return sketch.api != "fully_shard";
}

bool computes_in(const Unit& unit) {
  const Json policy = unit.settings.value("mixed_precision", Json());
  return policy.is_object() && policy.contains("param_dtype");
}

Json exact_classes(const Sketch& sketch) {
  const Json mixed = sketch.units.back().settings.value("mixed_precision", Json());
  return mixed.is_object() ? mixed.value("module_classes_to_ignore", Json::array()) : Json::array();
}

bool keeps_low_gradients(const Sketch& sketch) {
  return std::any_of(sketch.units.begin(), sketch.units.end(), [](const Unit& unit) {
    return unit.settings.value("mixed_precision", Json::object()).value("keep_low_precision_grads", false);
  });
}

bool sums_in_full_precision(const Sketch& sketch) {
  return std::all_of(sketch.units.begin(), sketch.units.end(), [](const Unit& unit) {
    return !computes_in(unit) || unit.settings["mixed_precision"].value("reduce_dtype", "") == "float32";
  });
}

bool has_small_dtype(const Sketch& sketch) {
  return sketch.dtype == "bfloat16" || sketch.dtype == "float16";
}

bool leaves_whole(AsideKind kind) {
  return kind == AsideKind::failed_backward || kind == AsideKind::part_forward ||
         kind == AsideKind::eval_forward || kind == AsideKind::no_grad_forward || kind == AsideKind::unshard;
}

std::vector<int> shape_of(const Sketch& sketch, const ParameterAt& at) {
  const std::size_t block = at.module.is_root() ? sketch.blocks.size() : at.module.block;
  const int before = width_before(sketch, block);
  if (at.name == "gain") return {before};
  if (at.name == "empty") return {0, before};
  int in = before, out = before;
  const Block& holder = sketch.blocks[block];
  if (holder.kind == BlockKind::side) in = sketch.in;
  if (holder.kind == BlockKind::linear || holder.kind == BlockKind::spare) out = holder.width;
  if (holder.kind == BlockKind::nested) {
    in = at.module.inner == 0 ? before : holder.middle;
    out = at.module.inner == 0 ? holder.middle : holder.width;
  }
  return at.name == "bias" ? std::vector{out} : std::vector{out, in};
}

int elements_of(const Sketch& sketch, const ParameterAt& at) {
  const std::vector<int> shape = shape_of(sketch, at);
  return std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>());
}

bool frees_after_forward(const Sketch& sketch, const Unit& unit) {
  const bool root = unit.modules.front().is_root();
  if (is_fsdp1(sketch)) {
    const std::string strategy = unit.settings.value("sharding_strategy", "FULL_SHARD");
    return !root && (strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD");
  }
  const Json reshard = unit.settings.value("reshard_after_forward", Json());
  if (reshard.is_number_integer()) return reshard != 1;
  return reshard.is_null() ? !root : reshard != false;
}

std::optional<std::string> why_illegal(const Sketch& sketch) {
  if (sketch.blocks.empty() && !sketch.root_gain) return "no parameters";
  if (!sketch.mesh.empty() && sketch.mesh[0] * sketch.mesh[1] != sketch.world)
    return "a mesh fills its world";
  if (sketch.mesh_of_groups && (sketch.mesh.empty() || is_fsdp1(sketch))) return "no mesh of groups";
  std::vector<ModuleAt> named;
  for (const Unit& unit : sketch.units) named.insert(named.end(), unit.modules.begin(), unit.modules.end());
  for (const auto* list : {&sketch.frozen, &sketch.ignored})
    for (const ParameterAt& each : *list) named.push_back(each.module);
  named.insert(named.end(), sketch.outside.begin(), sketch.outside.end());
  for (const auto* list : {&sketch.columns, &sketch.halves})
    for (const ParameterAt& each : *list) named.push_back(each.module);
  for (const Iteration& iteration : sketch.iterations) {
    for (const Aside& aside : iteration.before_step) named.push_back(aside.at.module);
    for (const MicroBatch& micro_batch : iteration.micro_batches)
      for (const Aside& aside : micro_batch.before) named.push_back(aside.at.module);
  }
  for (const ModuleAt& each : named)
    if (!exists(sketch, each)) return "names a module that is not there";
  if (auto bad = bad_units(sketch)) return bad;
  if (auto bad = bad_freezing(sketch)) return bad;
  if (auto bad = bad_wrapping(sketch)) return bad;
  if (auto bad = bad_making(sketch)) return bad;
  for (const std::string& each : sketch.refusals)
    if (!can_be_refused(each, sketch)) return "a program for another API or world";
  return bad_program(sketch);
}

}  // namespace fsdp_cts::generate
