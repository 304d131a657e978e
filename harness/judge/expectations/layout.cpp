// layout: every shard lies where the rule of its API puts it, and nothing that must be sharded is whole.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/judge/expectations/kinds.hpp"
#include "harness/judge/expectations/layout_rules.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

std::string text(const std::vector<Piece>& pieces) {
  if (pieces.empty()) return "nothing";
  std::string result;
  for (const Piece& piece : pieces)
    result += fmt::format("{}[{}, {})", result.empty() ? "" : " ", piece.offset, piece.offset + piece.length);
  return result;
}

Json as_json(const std::vector<Piece>& pieces) {
  Json result = Json::array();
  for (const Piece& piece : pieces) result.push_back({piece.offset, piece.length});
  return result;
}

// A flat parameter as the plan, or the reference where a policy wraps, composes it.
struct FlatUnit {
  std::string module;
  std::vector<FlatMember> members;
  std::int64_t alignment = 0;
  bool sharded = true;
};

class FlatUnits {
 public:
  FlatUnits(const JudgeContext& context, const std::string& model) : context_(context), model_(model) {
    const Json* plan = context.plan.plan(model);
    if (!plan) return;
    original_parameters_ = plan->value("api", "") == "composable";  // CP-1
    const Json& entries = plan->at("units");
    const bool automatic = std::any_of(entries.begin(), entries.end(), [](const Json& unit) {
      return unit.contains("auto_wrap") && !unit["auto_wrap"].is_null();
    });
    if (automatic) {
      from_reference(entries);
    } else {
      for (const Json& entry : entries) {
        for (const std::string& module : unit_modules(entry)) add(module, entry);
      }
    }
    fill();
  }

  const FlatUnit* unit_of(const std::string& parameter) const {
    for (const FlatUnit& unit : units_) {
      for (const FlatMember& member : unit.members) {
        if (member.name == parameter) return &unit;
      }
    }
    return nullptr;
  }
  bool known() const { return !units_.empty(); }

 private:
  void from_reference(const Json& entries) {
    const Evidence* reference = context_.truths.reference.evidence;
    if (!reference) return;
    for (const auto& [place, fact] : reference->facts) {
      if (place.what != "units" || place.model != model_) continue;
      for (const Json& unit : fact.at("units")) {
        Json settings = entries.back();
        if (unit.contains("settings")) settings.update(unit["settings"]);
        add(unit.at("module").get<std::string>(), settings);
      }
      return;
    }
  }

  void add(const std::string& module, const Json& settings) {
    FlatUnit unit;
    unit.module = module;
    unit.sharded = settings.value("sharding_strategy", std::string("FULL_SHARD")) != "NO_SHARD";
    auto precision = settings.find("mixed_precision");
    if (precision != settings.end() && precision->is_object() && precision->contains("param_dtype") &&
        (*precision)["param_dtype"].is_string()) {
      dtype_[module] = dtype_from_name((*precision)["param_dtype"].get<std::string>());
    }
    if (original_parameters_ || settings.value("use_orig_params", false)) aligned_.insert(module);
    units_.push_back(std::move(unit));
  }

  // By any of its names.
  bool ignored(const StateShape& state) const {
    const Json& entries = context_.plan.plan(model_)->at("units");
    return std::any_of(entries.begin(), entries.end(), [&](const Json& entry) {
      return ignores(entry, state.name) ||
             std::any_of(state.other_names.begin(), state.other_names.end(),
                         [&](const std::string& name) { return ignores(entry, name); });
    });
  }

  // Every parameter goes to the innermost unit around it. 16 bytes of the compute dtype is what members are
  // aligned to.
  void fill() {
    auto model = context_.a_case.models.find(model_);
    if (model == context_.a_case.models.end()) return;
    const std::vector<Cast> casts = context_.program.casts_before_sharding(model_);
    for (const StateShape& state : module_state(*model)) {
      if (state.is_buffer || ignored(state)) continue;
      FlatUnit* best = nullptr;
      for (FlatUnit& unit : units_) {
        if (inside_module(state.name, unit.module) && (!best || unit.module.size() > best->module.size()))
          best = &unit;
      }
      if (!best) continue;
      best->members.push_back({state.name, numel_of(state.shape)});
      const DType compute =
          dtype_.count(best->module) ? dtype_.at(best->module) : dtype_after(casts, state.name, state.dtype);
      if (aligned_.count(best->module)) best->alignment = 16 / static_cast<std::int64_t>(dtype_size(compute));
    }
  }

  const JudgeContext& context_;
  std::string model_;
  std::vector<FlatUnit> units_;
  bool original_parameters_ = false;
  std::map<std::string, DType> dtype_;
  std::set<std::string> aligned_;
};

class Layout {
 public:
  Layout(const Json& arguments, const Selection& selection, const JudgeContext& context, Outcome& outcome)
      : arguments_(arguments),
        selection_(selection),
        context_(context),
        outcome_(outcome),
        kind_(arguments.value("kind", std::string())) {}

  void run() {
    long seen = 0;
    for (const RankShard& shard : context_.testee.shards) {
      if (!concerns(shard)) continue;
      ++seen;
      if (!check(shard)) return;
    }
    if (seen == 0) nothing_observed(outcome_, "parameters at rest");
  }

 private:
  bool concerns(const RankShard& shard) const {
    const std::string& what = shard.place.what;
    if (what != "parameters" && (what != "gradients" || shard.none || !shard.sharded)) return false;
    if (!selection_.takes(shard.place)) return false;
    if (!arguments_.value("sharded", true)) return true;
    if (!context_.plan.plan(shard.place.model)) return false;
    // The rule of an API is about parameters at rest; literal pieces are right whenever they are
    // looked at.
    if (!arguments_.contains("pieces") && !context_.program.at(shard.place.step).settled) return false;
    if (arguments_.contains("pieces")) return arguments_["pieces"].contains(shard.place.name);
    return context_.plan.unit_of(shard.place.model, shard.place.name) != nullptr;
  }

  bool fail(const RankShard& shard, const char* code, const std::string& words, Json actual = nullptr,
            Json expected = nullptr) {
    outcome_.findings.push_back(
        failure(context_, shard.place,
                {code, describe(shard.place) + " " + words, std::move(actual), std::move(expected)}));
    return false;
  }

  bool check(const RankShard& shard) {
    if (!arguments_.value("sharded", true)) {
      return !shard.sharded ||
             fail(shard, "sharded", "is sharded and must be whole on every rank", "sharded", "whole");
    }
    std::vector<Piece> wanted;
    if (arguments_.contains("pieces")) {
      for (const Json& piece : arguments_["pieces"][shard.place.name]) {
        if (piece.at(0) == *shard.place.rank)
          wanted.push_back({piece.at(1).get<std::int64_t>(), piece.at(2).get<std::int64_t>()});
      }
    } else if (kind_ == "flat") {
      const auto pieces = flat(shard);
      if (!pieces) return outcome_.findings.empty();
      wanted = *pieces;
    } else {
      const auto pieces = per_parameter(shard);
      if (!pieces) return true;
      wanted = *pieces;
    }
    const auto actual = merged(shard.pieces);
    wanted = merged(std::move(wanted));
    if (actual == wanted) return true;
    if (!shard.sharded)
      return fail(shard, "not_sharded",
                  fmt::format("is whole and must be sharded (here: elements {})", text(wanted)), "whole",
                  as_json(wanted));
    return fail(shard, "layout",
                fmt::format("holds elements {} and must hold {}", text(actual), text(wanted)),
                as_json(actual), as_json(wanted));
  }

  struct Position {
    int rank, ranks;
  };
  Position position(const RankShard& shard) const {
    const ShardGroups groups = context_.plan.shard_groups(shard.place.model, shard.place.name);
    for (const auto& group : groups.groups) {
      auto member = std::find(group.begin(), group.end(), *shard.place.rank);
      if (member != group.end())
        return {static_cast<int>(member - group.begin()), static_cast<int>(group.size())};
    }
    return {0, 1};
  }

  // Nothing for parameters that the plan leaves alone.
  std::optional<std::vector<Piece>> per_parameter(const RankShard& shard) const {
    const Json& unit = *context_.plan.unit_of(shard.place.model, shard.place.name);
    if (auto ignored = unit.find("ignored_parameters"); ignored != unit.end() && ignored->is_array()) {
      const auto names = strings_of(*ignored);
      if (std::find(names.begin(), names.end(), shard.place.name) != names.end()) return std::nullopt;
    }
    std::int64_t dim = 0;
    if (auto dims = unit.find("shard_dims"); dims != unit.end() && dims->is_object())
      dim = dims->value(shard.place.name, std::int64_t{0});
    const auto dimensions = static_cast<std::int64_t>(shard.global_shape.size());
    if (dim < 0) dim += dimensions;
    if (dimensions > 0 && (dim < 0 || dim >= dimensions)) {
      outcome_.findings.push_back({VerdictKind::setup_error, "no_such_dimension",
                                   fmt::format("{}: the plan cuts it along a dimension that it does not have",
                                               describe(shard.place))});
      return std::nullopt;
    }
    const Position at = position(shard);
    return chunk_pieces(shard.global_shape, dim, at.rank, at.ranks);
  }

  std::optional<std::vector<Piece>> flat(const RankShard& shard) {
    auto [units, fresh] = units_.try_emplace(shard.place.model, context_, shard.place.model);
    if (!units->second.known()) {
      outcome_.findings.push_back({VerdictKind::setup_error, "reference_incomplete",
                                   "layout flat under an automatic wrap policy needs the reference's unit "
                                   "tree: the program must observe `units`"});
      return std::nullopt;
    }
    const FlatUnit* unit = units->second.unit_of(shard.place.name);
    if (!unit || !unit->sharded) return std::vector<Piece>{{0, numel_of(shard.global_shape)}};
    const Position at = position(shard);
    return flat_pieces(unit->members, unit->alignment, at.rank, at.ranks).at(shard.place.name);
  }

  const Json& arguments_;
  const Selection& selection_;
  const JudgeContext& context_;
  Outcome& outcome_;
  std::string kind_;
  std::map<std::string, FlatUnits> units_;
};

}  // namespace

void check_layout(const Json& arguments, const Selection& selection, const JudgeContext& context,
                  Outcome& outcome) {
  Layout(arguments, selection, context, outcome).run();
}

}  // namespace fsdp_cts
