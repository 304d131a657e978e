#include "harness/generate/counts.hpp"

#include <algorithm>
#include <set>

namespace fsdp_cts::generate {
namespace {

enum class Gathered { no, yes, unknown };

struct UnitState {
  bool sharded = false;  // more than one rank has a part of it
  int runs = 0;          // in one forward
  bool root = false;
  bool frees_after_forward = true;
  Gathered gathered = Gathered::no;
  std::vector<const ParameterInfo*> parameters;
};

class Walk {
 public:
  explicit Walk(const Sketch& sketch)
      : sketch_(sketch), fsdp1_(sketch.api != "fully_shard"), parameters_(parameters_of(sketch)) {
    for (const Unit& unit : sketch.units) {
      UnitState state;
      state.root = unit.modules.front().is_root();
      state.runs = runs_of(sketch, unit.modules.front());
      state.frees_after_forward = frees_after_forward(sketch, unit);
      units_.push_back(std::move(state));
    }
    for (const ParameterInfo& each : parameters_)
      if (const int unit = unit_of(sketch, each.at); unit >= 0) units_[unit].parameters.push_back(&each);
    for (std::size_t i = 0; i < units_.size(); ++i)
      units_[i].sharded = !units_[i].parameters.empty() && is_sharded(sketch, sketch.units[i]);
    for (const ParameterInfo& each : parameters_)
      if (is_frozen(sketch, each.at)) frozen_.insert(each.name);
    // A replica that holds everything is a group of one.
    replicas_ = !sketch.mesh.empty() && sketch.mesh[0] > 1;
  }

  std::vector<CollectiveCounts> run() {
    std::vector<CollectiveCounts> all;
    const bool units_known = sketch_.auto_wrap.is_null();
    for (const Iteration& iteration : sketch_.iterations) {
      waiting_.clear();

      for (const MicroBatch& each : iteration.micro_batches) {
        CollectiveCounts counts;
        for (const Aside& aside : each.before) step_aside(aside, counts);
        counts.gathers_in_forward = forward();
        // Ranks compare the order of their first forward by gathers of numbers.
        if (sketch_.order_checked && all.empty()) counts.gathers_in_forward.reset();
        backward(each, counts);
        if (&each == &iteration.micro_batches.back())
          for (const Aside& aside : iteration.before_step) step_aside(aside, counts);
        if (!units_known) {
          const std::size_t asides = counts.gathers_aside.size();
          counts = {};
          counts.gathers_aside.resize(asides);
        }
        all.push_back(counts);
      }
    }
    return all;
  }

 private:
  std::optional<int> forward() { return forward_of({}); }

  // Of the units inside of a module.
  std::optional<int> forward_of(const ModuleAt& module) {
    int count = 0;
    bool known = !ahead_for_nobody_;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      UnitState& unit = units_[i];
      if (!holds(module, sketch_.units[i].modules.front())) continue;
      if (!module.is_root() && unit.runs == 0) {  // it runs here
        known = false;
        // And so FSDP1 may have it in its order, by which units are gathered ahead.
        ahead_for_nobody_ = ahead_for_nobody_ || fsdp1_;
      }
      if (!unit.sharded || unit.runs == 0) continue;
      known = known && unit.gathered != Gathered::unknown;
      // What an evaluation has left in full precision is no use for training, nor the other way round.
      if (sketch_.full_precision_in_eval && unit.gathered == Gathered::yes) known = false;
      // A unit that is called twice is freed between the calls, or not; FSDP1's rule is about one.
      if (unit.runs > 1) known = false;
      count += unit.gathered == Gathered::no ? 1 : 0;
      unit.gathered = unit.frees_after_forward ? Gathered::no : Gathered::yes;
    }
    return known ? std::optional(count) : std::nullopt;
  }

  bool trains(const ParameterInfo& parameter, Uses by) const {
    return reaches(by, sketch_, parameter) && !frozen_.contains(parameter.name);
  }

  // The members of a flat parameter are views of it: one that is trained makes it catch what others, frozen, are given.
  bool gets_gradient(const UnitState& unit, Uses by) const {
    const auto any = [&](auto&& holds) {
      return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                         [&](const ParameterInfo* each) { return holds(*each); });
    };
    if (!fsdp1_) return any([&](const ParameterInfo& each) { return trains(each, by); });
    return any([&](const ParameterInfo& each) { return reaches(by, sketch_, each); }) &&
           any([&](const ParameterInfo& each) { return !frozen_.contains(each.name); });
  }

  void backward(const MicroBatch& micro_batch, CollectiveCounts& counts) {
    // Where every unit runs once and trains, backward needs each of them once.
    const bool plain = !forwards_in_vain_ && !recomputes(sketch_) &&
                       std::all_of(units_.begin(), units_.end(), [&](const auto& unit) {
                         return !unit.sharded ||
                                (unit.runs == 1 && std::all_of(unit.parameters.begin(), unit.parameters.end(),
                                                               [&](const auto* each) {
                                                                 return trains(*each, micro_batch.uses);
                                                               }));
                       });
    // What waits from before is reduced when the later call's backward is over, and the rest after the
    // earlier call's: how often, no clause says.
    const bool counted = [&] {
      for (const std::size_t i : waiting_)
        if (units_[i].runs > 1) return false;
      return true;
    }();
    int gathers = 0, reductions = 0, replicated = 0;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      UnitState& unit = units_[i];
      const bool has_gradient = gets_gradient(unit, micro_batch.uses);
      if (has_gradient) waiting_.insert(i);
      if (unit.sharded && unit.gathered == Gathered::no) ++gathers;
      if (micro_batch.sync && waiting_.contains(i)) {
        if (unit.sharded) ++reductions;
        if (replicas_ || (fsdp1_ && !unit.sharded && sketch_.world > 1)) ++replicated;
      }
      if (unit.sharded) unit.gathered = after_backward(i, micro_batch, plain, has_gradient);
    }
    if (plain) counts.gathers_in_backward = gathers;
    if (counted) counts.reduce_scatters = reductions;
    // A group of one rank reduces with itself, or does not.
    const bool alone = sketch_.world == 1 || (!sketch_.mesh.empty() && sketch_.mesh[0] == 1);
    if (counted && !alone) counts.all_reduces = micro_batch.all_reduce ? replicated : 0;
    if (micro_batch.sync) waiting_.clear();
    // FSDP1 drops what it knows of its order with each forward that no backward follows; FSDP2 with the end
    // of the last backward.
    if (micro_batch.last_backward)
      forwards_in_vain_ = false;
    else
      forwards_in_vain_ = true;
  }

  Gathered after_backward(std::size_t i, const MicroBatch& micro_batch, bool plain, bool reached) const {
    if (fsdp1_) {
      // PyTorch leaves it whole where its strategy does after a forward.
      if (!reached && !units_[i].frees_after_forward) return Gathered::unknown;
      const std::string strategy = sketch_.units[i].settings.value("sharding_strategy", "FULL_SHARD");
      const bool keeps = strategy == "SHARD_GRAD_OP" || strategy == "_HYBRID_SHARD_ZERO2";
      if (micro_batch.sync || !keeps) return Gathered::no;
      return plain ? Gathered::yes : Gathered::unknown;
    }
    if (!plain && !(micro_batch.reshard_after_backward && micro_batch.last_backward))
      return Gathered::unknown;  // gathered ahead for nobody, perhaps, and only the last backward frees that
    return micro_batch.reshard_after_backward ? Gathered::no : Gathered::yes;
  }

  void step_aside(const Aside& aside, CollectiveCounts& counts) {
    switch (aside.kind) {
      case AsideKind::eval_forward:
      case AsideKind::no_grad_forward:
        counts.gathers_aside.push_back(forward());
        forwards_in_vain_ = true;
        return;
      case AsideKind::part_forward:
        counts.gathers_aside.push_back(forward_of(aside.at.module));
        forwards_in_vain_ = true;
        return;
      case AsideKind::unshard:
      case AsideKind::unshard_and_reshard:
        for (std::size_t i = 0; i < units_.size(); ++i) {
          const auto& modules = sketch_.units[i].modules;
          if (std::find(modules.begin(), modules.end(), aside.at.module) == modules.end()) continue;
          units_[i].gathered = aside.kind == AsideKind::unshard ? Gathered::yes : Gathered::no;
        }
        return;
      case AsideKind::set_reshard_after_forward:
        for (std::size_t i = 0; i < units_.size(); ++i) {
          const auto& modules = sketch_.units[i].modules;
          if (std::any_of(modules.begin(), modules.end(),
                          [&](const ModuleAt& module) { return holds(aside.at.module, module); }))
            units_[i].frees_after_forward = aside.value;
        }
        return;
      case AsideKind::set_requires_grad:
        for (const ParameterInfo& each : parameters_) {
          if (!takes(aside.at, each.at)) continue;
          if (aside.value)
            frozen_.erase(each.name);
          else
            frozen_.insert(each.name);
        }
        return;
      case AsideKind::failed_backward:
        // Units that it has gathered and not come to are freed when it is next looked at, or not.
        for (UnitState& unit : units_)
          if (unit.sharded) unit.gathered = Gathered::unknown;
        [[fallthrough]];
      case AsideKind::failed_forward:
        forwards_in_vain_ = true;
        [[fallthrough]];
      default:
        // Saving and summoning leave a unit as they found it, or free it.
        for (UnitState& unit : units_)
          if (unit.gathered != Gathered::no) unit.gathered = Gathered::unknown;
    }
  }

  const Sketch& sketch_;
  const bool fsdp1_;
  const std::vector<ParameterInfo> parameters_;
  std::vector<UnitState> units_;
  std::set<std::string> frozen_;
  std::set<std::size_t> waiting_;  // units with gradients that are not reduced yet
  bool replicas_ = false, forwards_in_vain_ = false, ahead_for_nobody_ = false;
};

}  // namespace

std::vector<std::string> chain_of_layers(const Sketch& sketch) {
  if (!sketch.auto_wrap.is_null() || !sketch.frozen.empty() || !sketch.ignored.empty()) return {};
  if (recomputes(sketch)) return {};
  for (const Iteration& iteration : sketch.iterations) {
    if (!iteration.before_step.empty()) return {};
    for (const MicroBatch& each : iteration.micro_batches)
      if (!each.before.empty() || !each.sync || !each.reshard_after_backward || !each.last_backward)
        return {};
  }
  std::vector<std::string> chain;
  const bool fsdp1 = sketch.api != "fully_shard";
  int last_block = -1;
  for (const Unit& unit : sketch.units) {
    if (unit.settings != sketch.units.back().settings) return {};
    const ModuleAt& module = unit.modules.front();
    if (module.is_root()) continue;
    if (unit.modules.size() > 1 || module.inner >= 0 || module.block <= last_block ||
        sketch.blocks[module.block].kind != BlockKind::linear || !is_sharded(sketch, unit))
      return {};
    const std::string strategy = unit.settings.value("sharding_strategy", "FULL_SHARD");
    const Json reshard = unit.settings.value("reshard_after_forward", Json());
    const bool stays = reshard.is_boolean() ? !reshard.get<bool>() : reshard == 1;
    if (fsdp1 ? strategy != "FULL_SHARD" : stays) return {};
    // FSDP1 takes the first unit of the order for one that is in none, so that its place tells nothing.
    last_block = module.block;
    chain.push_back(path_of(sketch, module));
  }
  return chain;
}

std::vector<CollectiveCounts> count_collectives(const Sketch& sketch) {
  return Walk(sketch).run();
}

}  // namespace fsdp_cts::generate
