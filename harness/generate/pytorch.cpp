#include "harness/generate/pytorch.hpp"

#include <algorithm>

#include "harness/generate/refusals.hpp"

namespace fsdp_cts::generate {
namespace {

// The last of `ranks` holds no row.
bool leaves_a_rank_empty(const Sketch& sketch, const ParameterInfo& parameter, int ranks) {
  const int rows = shape_of(sketch, parameter.at).front();
  return (rows + ranks - 1) / ranks * (ranks - 1) >= rows;
}

// A parameter of which the last rank of the shard group holds no row.
bool has_empty_shard(const Sketch& sketch) {
  const std::vector<ParameterInfo> all = parameters_of(sketch);
  return std::any_of(all.begin(), all.end(), [&](const ParameterInfo& each) {
    const int unit = unit_of(sketch, each.at);
    return unit >= 0 && leaves_a_rank_empty(sketch, each, shard_group(sketch, sketch.units[unit]));
  });
}

std::optional<std::string> why_not_resumed(const Sketch& sketch) {
  if (!sketch.resumed) return std::nullopt;
  if (sketch.resumed->api == "composable" && !sketch.resumed->root_alone)
    return "takes each composable unit for a root that is looked at before the first forward";
  const std::vector<ParameterInfo> all = parameters_of(sketch);
  if (sketch.resumed->format != "safetensors" && sketch.resumed->api != "fully_shard" &&
      std::any_of(all.begin(), all.end(),
                  [&](const ParameterInfo& each) { return leaves_a_rank_empty(sketch, each, sketch.world); }))
    return "takes an FSDP1 model, of which a rank holds no row, for an older one when it loads";
  return std::nullopt;
}

std::vector<ParameterInfo> owned_by(const Sketch& sketch, const Unit& unit) {
  std::vector<ParameterInfo> owned;
  for (const ParameterInfo& each : parameters_of(sketch)) {
    const int owner = unit_of(sketch, each.at);
    if (owner >= 0 && &sketch.units[owner] == &unit) owned.push_back(each);
  }
  return owned;
}

// A policy may make a unit of any module.
bool is_of_one_element(const Sketch& sketch, const Unit& unit) {
  const auto is_one = [&](const ParameterInfo& each) { return elements_of(sketch, each.at) == 1; };
  const std::vector<ParameterInfo> owned = owned_by(sketch, unit);
  if (!sketch.auto_wrap.is_null()) return std::any_of(owned.begin(), owned.end(), is_one);
  return owned.size() == 1 && is_one(owned.front());
}

// By one backward, at least. Of a policy's units, any of which may be of one parameter, one is enough.
bool is_unreached(const Sketch& sketch, const Unit& unit) {
  const std::vector<ParameterInfo> owned = owned_by(sketch, unit);
  const auto reached_by = [&](Uses uses) {
    const auto is_reached = [&](const ParameterInfo& each) { return reaches(uses, sketch, each); };
    return sketch.auto_wrap.is_null() ? std::any_of(owned.begin(), owned.end(), is_reached)
                                      : std::all_of(owned.begin(), owned.end(), is_reached);
  };
  return !owned.empty() &&
         any_micro_batch(sketch, [&](const MicroBatch& each) { return !reached_by(each.uses); });
}

// Some of its parameters, by one backward.
bool is_reached_in_part(const Sketch& sketch, const Unit& unit) {
  const std::vector<ParameterInfo> owned = owned_by(sketch, unit);
  return any_micro_batch(sketch, [&](const MicroBatch& each) {
    const auto reached = std::count_if(owned.begin(), owned.end(), [&](const ParameterInfo& parameter) {
      return reaches(each.uses, sketch, parameter);
    });
    return reached > 0 && reached < static_cast<std::ptrdiff_t>(owned.size());
  });
}

bool accumulates(const Sketch& sketch) {
  return std::any_of(sketch.iterations.begin(), sketch.iterations.end(), [](const Iteration& each) {
    return each.zero_grad == ZeroGrad::keep || each.micro_batches.size() > 1;
  });
}

bool is_frozen(const Sketch& sketch, const Unit& unit) {
  const std::vector<ParameterInfo> owned = owned_by(sketch, unit);
  return !owned.empty() && std::all_of(owned.begin(), owned.end(),
                                       [&](const ParameterInfo& each) { return is_frozen(sketch, each.at); });
}

bool waits_for_gradients(const Sketch& sketch) {
  return any_micro_batch(sketch, [](const MicroBatch& each) { return !each.sync; });
}

// Some rank may hold nothing of the model.
bool holds_little(const Sketch& sketch) {
  int elements = 0;
  for (const ParameterInfo& each : parameters_of(sketch)) elements += elements_of(sketch, each.at);
  return elements < flat_alignment * sketch.world * static_cast<int>(sketch.units.size());
}

// Element of all gradients.
bool asks_for_the_greatest(const Sketch& sketch) {
  return std::any_of(sketch.iterations.begin(), sketch.iterations.end(),
                     [](const Iteration& each) { return each.clip == Clip::largest; }) ||
         any_aside(sketch, [](const Aside& each) { return each.kind == AsideKind::clip && !each.value; });
}

std::optional<std::string> why_not_in_fully_shard(const Sketch& sketch) {
  for (const Unit& unit : sketch.units) {
    if (unit.modules.size() > 1 && has_side(sketch))
      return "gathers a unit of several modules for a gradient of the last one's output alone";
    if (unit.modules.size() > 1 && recomputes(sketch))
      return "takes a recomputed module for one that has run in the unit's next forward";
    if (unit.settings.value("reshard_after_forward", Json()) == 1)
      return "writes into its log, and does not warn, that to one rank means no resharding";
    if (is_unreached(sketch, unit) && waits_for_gradients(sketch))
      return "looks for waiting gradients in what was never gathered";
    if (unit.settings.value("mixed_precision", Json::object()).contains("reduce_dtype") &&
        is_reached_in_part(sketch, unit) && waits_for_gradients(sketch))
      return "takes no new gradients beside those that wait in another dtype";
    if (unit.divide_factor != 0 && shard_group(sketch, unit) == 1)
      return "divides otherwise by a factor where a shard group is of one";
  }
  for (const ParameterAt& each : sketch.columns)
    if (const int unit = unit_of(sketch, each);
        unit >= 0 && sketch.units[unit].settings.value("reshard_after_forward", Json()).is_number())
      return "cannot gather again what is cut on another dimension and lies with a smaller group";
  if (has_aside(sketch, AsideKind::foreign_state) &&
      (!sketch.mesh.empty() || has_block(sketch, BlockKind::empty)))
    return "loads shards of its own mesh alone, and such as it shards itself";
  if (sketch.scale != 0 && !sketch.ignored.empty())
    return "its scaler takes sharded gradients or plain ones, not both";
  if (asks_for_the_greatest(sketch) && has_empty_shard(sketch))
    return "raises for the infinity norm on a rank that holds nothing of a gradient";
  for (const Iteration& iteration : sketch.iterations) {
    if (!iteration.overflow.empty())
      return "its testee writes plain values, which gradients of shards are not";
    const auto& before = iteration.micro_batches.front().before;
    for (const Aside& each : before)
      if (each.kind == AsideKind::optimizer_state && each.value)
        return "gives a new optimizer no state where gradients are left, and then has nowhere to load a full "
               "one";
  }
  return std::nullopt;
}

bool clips(const Sketch& sketch) {
  return has_aside(sketch, AsideKind::clip) ||
         std::any_of(sketch.iterations.begin(), sketch.iterations.end(),
                     [](const Iteration& each) { return each.clip != Clip::none; });
}

// Something else than values, to a gradient that waits.
bool assigns(const Sketch& sketch) {
  return any_aside(sketch, [](const Aside& each) {
    return each.kind == AsideKind::assign_gradient && each.options.at("how") != "inplace";
  });
}

// In a scope.
bool shows_gradients(const Sketch& sketch) {
  return any_aside(sketch, [](const Aside& each) {
    return each.kind == AsideKind::summon && each.options.value("with_grads", false);
  });
}

std::optional<std::string> why_not_in_fsdp1(const Sketch& sketch) {
  if (sketch.full_precision_in_eval && has_aside(sketch, AsideKind::eval_forward))
    return "computes an evaluation in full precision with what an earlier one has gathered";
  if (sketch.api == "composable" && std::any_of(sketch.ignored.begin(), sketch.ignored.end(),
                                                [](const ParameterAt& each) { return !each.name.empty(); }))
    return "takes names in another order for other names";
  if (sketch.api == "composable" && sketch.cast_late)
    return "casts a model of composable units in vain: what is registered is no flat parameter";
  if (sketch.dtype == "float64" && clips(sketch))
    return "computes norms in float32, which float64 does not become";
  if ((!sketch.halves.empty() || sketch.dtype != "float32") && has_aside(sketch, AsideKind::summon))
    return "gathers for a scope gradients of the default dtype on a rank that has none";
  if (keeps_low_gradients(sketch) && has_block(sketch, BlockKind::tied))
    return "shows a kept gradient at the second place of a parameter, where none of its dtype may stand";
  if (std::any_of(sketch.iterations.begin(), sketch.iterations.end(),
                  [](const Iteration& each) { return each.late; }))
    return "adds to gradients that were set to zero behind a forward";
  if (asks_for_the_greatest(sketch) && holds_little(sketch))
    return "keeps the greatest element of all ranks on one that has no gradient";
  if (sketch.order_checked && has_block(sketch, BlockKind::twice))
    return "compares the second call of a unit, which it has not noted in the first iteration";
  if (sketch.order_checked && (has_aside(sketch, AsideKind::optimizer_state) || sketch.resumed))
    return "asks a CPU for a summary of its memory when it gathers optimizer states at debug level DETAIL";
  if (sketch.order_checked && !sketch.auto_wrap.is_null())
    return "warns of an order where a policy has left a root without parameters";
  if (!sketch.ignored.empty() && asks_for_the_greatest(sketch))
    return "takes the greatest ignored gradient of all ranks into each one's norm";
  if (assigns(sketch))
    return "takes a whole gradient that is given for one of a shard, and does not see that one was taken";
  if (keeps_low_gradients(sketch) && shows_gradients(sketch))
    return "shows gradients in the parameters' dtype, which kept ones have not";
  const bool saves = has_aside(sketch, AsideKind::full_state) ||
                     has_aside(sketch, AsideKind::sharded_state) || has_aside(sketch, AsideKind::part_state);
  if (saves && has_block(sketch, BlockKind::shift) && computes_in(sketch.units.back()))
    return "saves the buffers of a root with units inside in the dtype they are cast to";
  if (sketch.synced) return "broadcasts module states from accelerator to accelerator only";
  if (has_aside(sketch, AsideKind::first_rank_state) ||
      any_aside(sketch, [](const Aside& each) { return each.options.value("offload_to_cpu", false); }))
    return "offloads whole parameters by freeing what it still uses where the model is in host memory";
  const bool freezes = !sketch.frozen.empty() || has_aside(sketch, AsideKind::set_requires_grad);
  if (freezes && shows_gradients(sketch))
    return "shows in a scope what a flat parameter has caught for frozen members";
  if (has_aside(sketch, AsideKind::local_state) && !sketch.mesh.empty())
    return "has no local state dicts over a mesh";
  for (const Unit& unit : sketch.units) {
    if (accumulates(sketch) && is_unreached(sketch, unit))
      return "drops the gradient of a unit that backward comes to and does not reach";
    if (!is_sharded(sketch, unit) && (is_unreached(sketch, unit) || is_frozen(sketch, unit) ||
                                      has_aside(sketch, AsideKind::set_requires_grad)))
      return "leaves views in place of parameters that backward does not reach";
    if (is_frozen(sketch, unit) && !original_parameters(sketch, unit) && !frees_after_forward(sketch, unit))
      return "takes a frozen flat parameter that was left whole for freed";
    if (!original_parameters(sketch, unit) && is_of_one_element(sketch, unit))
      return "tells gradients that wait from reduced ones by their size";
    if (computes_in(unit) && !is_sharded(sketch, unit) && waits_for_gradients(sketch))
      return "adds up gradients of a low precision where none of that dtype may stand";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> why_not_for_pytorch(const Sketch& sketch) {
  if (has_aside(sketch, AsideKind::failed_backward))
    return "takes its final callback for queued after a failed backward";
  if (has_aside(sketch, AsideKind::failed_forward))
    return "keeps what a failed forward has gathered, and in FSDP1 is in the middle of a forward ever after";
  for (const std::string& each : sketch.refusals)
    if (!pytorch_refuses(each)) return "does not refuse everything";
  const bool loads_state =
      has_aside(sketch, AsideKind::optimizer_state) || (sketch.resumed && has_optimizer_state(sketch));
  if (loads_state && (leaves_layers_out(sketch) || has_block(sketch, BlockKind::empty)))
    return "wants a state of each parameter, also of unused ones";
  if (loads_state && has_aside(sketch, AsideKind::set_requires_grad))
    return "wants a state of what was frozen before the first step, and drops that of what was frozen after "
           "it";
  if (auto why = why_not_resumed(sketch)) return why;
  for (const Iteration& iteration : sketch.iterations) {
    bool whole = false;
    for (const Aside& each : iteration.micro_batches.front().before) {
      if (each.kind == AsideKind::summon && whole && !each.options.value("writeback", true))
        return "computes with what a scope was to discard, in units that were whole";
      if (each.kind == AsideKind::optimizer_state && whole)
        return "names the optimizer's parameters by what the module shows, also while units are whole";
      if (each.kind == AsideKind::foreign_state && whole && !is_fsdp1(sketch))
        return "cannot load shards into what a forward has left whole";
      if (each.kind == AsideKind::local_state && whole)
        return "computes with what was whole before a local state dict was loaded";
      whole = whole || leaves_whole(each.kind);
    }
  }
  return is_fsdp1(sketch) ? why_not_in_fsdp1(sketch) : why_not_in_fully_shard(sketch);
}

}  // namespace fsdp_cts::generate
