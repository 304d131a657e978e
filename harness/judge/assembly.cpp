#include "harness/judge/assembly.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "harness/judge/compare.hpp"
#include "harness/judge/entries.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Optimizer state, observed as such or taken as a state dict, is named <parameter>/<state>.
bool is_optimizer_state(const Place& place) {
  return place.what == "optimizer_state" ||
         (place.what.starts_with("state_dict:") && place.name.find('/') != std::string::npos);
}
std::string parameter_of(const Place& place) {
  return is_optimizer_state(place) ? place.name.substr(0, place.name.rfind('/')) : place.name;
}

// Shapes the models have by their descriptions: what a testee says about shapes is checked against these.
class ModelShapes {
 public:
  explicit ModelShapes(const Case& a_case) {
    for (const auto& [model, description] : a_case.models.items()) {
      for (const StateShape& state : module_state(description)) shapes_[{model, state.name}] = state;
      add_aliases(model, description, "");
    }
  }
  const StateShape* find(const std::string& model, const std::string& name) const {
    auto found = shapes_.find({model, name});
    return found == shapes_.end() ? nullptr : &found->second;
  }

 private:
  // A tied parameter has one entry in the model's state but both of its names in a state dict.
  void add_aliases(const std::string& model, const Json& module, const std::string& prefix) {
    if (auto tie = module.find("tie"); tie != module.end()) {
      for (const Json& pair : *tie) {
        if (const StateShape* owner = find(model, prefix + pair.at(1).get<std::string>())) {
          shapes_.emplace(std::pair(model, prefix + pair.at(0).get<std::string>()), *owner);
        }
      }
    }
    if (auto children = module.find("children"); children != module.end()) {
      for (const Json& child : *children)
        add_aliases(model, child.at(1), prefix + child.at(0).get<std::string>() + ".");
    }
  }

  std::map<std::pair<std::string, std::string>, StateShape> shapes_;
};

class TesteeAssembly {
 public:
  TesteeAssembly(const Case& a_case, const ProgramMap& program, const ShardingPlan& plan,
                 std::vector<Finding>& findings)
      : shapes_(a_case), program_(program), plan_(plan), findings_(findings) {}

  void add(const Observation& observation) {
    EntrySink sink;
    sink.on_register = [&](const Place& place, const HostTensor& tensor) {
      if (!evidence.values.emplace(place, Value{tensor, false, false, {}}).second) duplicate(place);
    };
    sink.on_fact = [&](const Place& place, const Json& entry) {
      if (!evidence.facts.emplace(place, entry).second) duplicate(place);
    };
    sink.on_item = [&](const ItemRead& item) { add_item(item); };
    sink.on_finding = [&](Finding finding) { findings_.push_back(std::move(finding)); };
    read_entries(observation, program_, false, VerdictKind::fail, sink);
  }

  // Once all observations are in: groups of ranks are complete now.
  void finish() {
    for (auto& [place, shards] : sharded_) {
      // Ranks answer in any order; what is said about them must not depend on it.
      std::sort(shards.begin(), shards.end(), [](const ShardOfRank& a, const ShardOfRank& b) {
        return a.described.place.rank < b.described.place.rank;
      });
      assemble(place, shards);
    }
  }

  Evidence evidence;

 private:
  void report(const std::string& code, const Place& place, const std::string& text, Json actual = nullptr,
              Json expected = nullptr) {
    Finding finding = finding_at(VerdictKind::fail, code, place, program_, describe(place) + ": " + text);
    if (!actual.is_null()) finding.divergence["actual"] = std::move(actual);
    if (!expected.is_null()) finding.divergence["expected"] = std::move(expected);
    findings_.push_back(std::move(finding));
  }
  void duplicate(const Place& place) { report("duplicate_entry", place, "observed twice in one step"); }

  // Against the model's description: name, global shape, and the dtype of parameters at rest.
  bool fits_model(const ItemRead& item) {
    const Place& place = item.described.place;
    const bool state = is_optimizer_state(place);
    const StateShape* known = shapes_.find(place.model, parameter_of(place));
    if (!known) {
      report("unknown_name", place, fmt::format("the model has no '{}'", parameter_of(place)));
      return false;
    }
    // Optimizers keep scalars beside tensors of the parameter's shape (a step count).
    const bool scalar_state = state && numel_of(item.described.global_shape) == 1;
    if (item.described.global_shape != known->shape && !scalar_state) {
      report("shape", place,
             fmt::format("global shape {} where the model has {}", shape_text(item.described.global_shape),
                         shape_text(known->shape)),
             item.described.global_shape, known->shape);
      return false;
    }
    const bool at_rest =
        place.what == "full_parameters" || (place.what == "parameters" && program_.at(place.step).settled);
    const DType dtype = dtype_after(program_.at(place.step).casts, parameter_of(place), known->dtype);
    if (at_rest && !item.described.pieces.empty() && item.described.dtype != dtype) {
      report("dtype", place,
             fmt::format("{} at rest; the model's parameter is {}", dtype_name(item.described.dtype),
                         dtype_name(dtype)),
             dtype_name(item.described.dtype), dtype_name(dtype));
      return false;
    }
    return true;
  }

  void add_item(const ItemRead& item) {
    const Place& place = item.described.place;
    if (!items_seen_.insert(place).second) return duplicate(place);
    if (!fits_model(item)) return;
    evidence.shards.push_back(item.described);
    if (item.described.sharded) {
      Place unranked = place;
      unranked.rank.reset();
      sharded_[unranked].push_back({item.described, copies(item)});
      return;
    }
    Value value{{}, item.described.none, false, item.described.requires_grad};
    if (!item.described.none) {
      Whole whole(item.described.dtype, item.described.global_shape);
      if (!put(whole, place, item.described, copies(item)) ||
          !complete(whole, place, fmt::format("rank {}, which says it is not sharded", *place.rank)))
        return;
      value.tensor = std::move(whole.tensor);
    }
    evidence.values.emplace(place, std::move(value));
  }

  struct ShardOfRank {
    RankShard described;
    std::vector<HostTensor> tensors;
  };
  static std::vector<HostTensor> copies(const ItemRead& item) {
    std::vector<HostTensor> result;
    for (const HostTensor* tensor : item.tensors) result.push_back(*tensor);
    return result;
  }

  // A tensor under assembly: bytes and who covered which element.
  struct Whole {
    Whole(DType dtype, const std::vector<std::int64_t>& shape) {
      tensor.dtype = dtype;
      tensor.shape = shape;
      const auto count = static_cast<std::size_t>(numel_of(shape));
      tensor.bytes.resize(count * dtype_size(dtype));
      owner.assign(count, -1);
    }
    HostTensor tensor;
    std::vector<int> owner;
  };

  bool put(Whole& whole, const Place& place, const RankShard& shard, const std::vector<HostTensor>& tensors) {
    const std::size_t size = dtype_size(whole.tensor.dtype);
    const auto count = static_cast<std::int64_t>(whole.owner.size());
    const int rank = *shard.place.rank;
    for (std::size_t i = 0; i < shard.pieces.size(); ++i) {
      const Piece& piece = shard.pieces[i];
      if (piece.offset < 0 || piece.offset > count || piece.length > count - piece.offset) {
        report("shard_out_of_range", shard.place,
               fmt::format("elements {} to {} of a tensor of {}", piece.offset, piece.offset + piece.length,
                           count));
        return false;
      }
      for (std::int64_t at = piece.offset; at < piece.offset + piece.length; ++at) {
        int& owner = whole.owner[static_cast<std::size_t>(at)];
        if (owner != -1) {
          Place of_rank = place;
          of_rank.rank = rank;
          report("shard_overlap", of_rank,
                 fmt::format("element {} is held by rank {} and by rank {}", at, owner, rank),
                 fmt::format("ranks {} and {}", owner, rank), "one rank");
          return false;
        }
        owner = rank;
      }
      if (piece.length == 0) continue;
      std::memcpy(&whole.tensor.bytes[static_cast<std::size_t>(piece.offset) * size], tensors[i].bytes.data(),
                  static_cast<std::size_t>(piece.length) * size);
    }
    return true;
  }

  bool complete(const Whole& whole, const Place& place, const std::string& holders) {
    auto hole = std::find(whole.owner.begin(), whole.owner.end(), -1);
    if (hole == whole.owner.end()) return true;
    const auto missing = std::count(whole.owner.begin(), whole.owner.end(), -1);
    report("shard_missing", place,
           fmt::format("{} of {} elements, from element {} on, are held by nobody among {}", missing,
                       whole.owner.size(), hole - whole.owner.begin(), holders));
    findings_.back().divergence["index"] = unflatten(hole - whole.owner.begin(), whole.tensor.shape);
    return false;
  }

  bool agree(const Place& place, const std::vector<ShardOfRank>& shards) {
    const RankShard* first = nullptr;
    for (const ShardOfRank& shard : shards) {
      if (shard.described.none) continue;
      if (!first) first = &shard.described;
      if (shard.described.dtype == first->dtype) continue;
      Place of_rank = place;
      of_rank.rank = shard.described.place.rank;
      report("rank_disagreement", of_rank,
             fmt::format("{} on rank {} but {} on rank {}", dtype_name(shard.described.dtype),
                         *shard.described.place.rank, dtype_name(first->dtype), *first->place.rank),
             dtype_name(shard.described.dtype), dtype_name(first->dtype));
      return false;
    }
    return true;
  }

  // Which of the legal groupings the pieces follow: after forward parameters may lie sharded over smaller
  // groups.
  ShardGroups grouping(const Place& place, const std::vector<ShardOfRank>& shards) const {
    ShardGroups by_mesh = plan_.shard_groups(place.model, parameter_of(place));
    if (program_.at(place.step).settled) return by_mesh;
    std::int64_t elements = 0;
    for (const ShardOfRank& shard : shards) elements += shard.described.elements();
    const std::int64_t count = numel_of(shards.front().described.global_shape);
    if (elements == count * static_cast<std::int64_t>(by_mesh.groups.size())) return by_mesh;
    for (ShardGroups& smaller : plan_.post_forward_groups(place.model)) {
      if (elements == count * static_cast<std::int64_t>(smaller.groups.size())) return smaller;
    }
    return by_mesh;
  }

  void assemble(const Place& place, const std::vector<ShardOfRank>& shards) {
    if (!agree(place, shards)) return;
    const ShardGroups groups = grouping(place, shards);
    std::optional<HostTensor> first_replica;
    for (const std::vector<int>& group : groups.groups) {
      std::vector<const ShardOfRank*> members;
      for (const ShardOfRank& shard : shards) {
        if (std::find(group.begin(), group.end(), *shard.described.place.rank) != group.end())
          members.push_back(&shard);
      }
      if (members.empty()) {
        const auto due = std::find_if(group.begin(), group.end(),
                                      [&](int rank) { return program_.takes_part(place.step, rank); });
        if (due == group.end()) continue;
        Place of_rank = place;
        of_rank.rank = *due;
        report("shard_missing", of_rank,
               fmt::format("no rank of {} names it, and others do", fmt::join(group, ", ")));
        return;
      }
      Place of_group = place;
      if (!groups.replicas && groups.groups.size() > 1) of_group.rank = group.front();
      Value value{{}, true, true, members.front()->described.requires_grad};
      auto present = std::find_if(members.begin(), members.end(),
                                  [](const ShardOfRank* shard) { return !shard->described.none; });
      if (present != members.end()) {
        Whole whole((*present)->described.dtype, (*present)->described.global_shape);
        for (const ShardOfRank* shard : members) {
          if (!put(whole, of_group, shard->described, shard->tensors)) return;
        }
        if (!complete(whole, of_group, fmt::format("ranks {}", fmt::join(group, ", ")))) return;
        value.tensor = std::move(whole.tensor);
        value.none = false;
      }
      if (groups.replicas && first_replica && value.tensor.bytes != first_replica->bytes) {
        Place of_rank = place;
        of_rank.rank = group.front();
        report("replica_differs", of_rank,
               fmt::format("the replica on ranks {} has other bits than the one on ranks {}",
                           fmt::join(group, ", "), fmt::join(groups.groups.front(), ", ")));
        if (!groups.replica_clause.empty()) findings_.back().divergence["clause"] = groups.replica_clause;
        return;
      }
      if (groups.replicas && !first_replica) first_replica = value.tensor;
      evidence.values.emplace(of_group, std::move(value));
    }
  }

  ModelShapes shapes_;
  const ProgramMap& program_;
  const ShardingPlan& plan_;
  std::vector<Finding>& findings_;
  std::set<Place> items_seen_;
  std::map<Place, std::vector<ShardOfRank>> sharded_;
};

}  // namespace

Evidence assemble_testee(const Case& a_case, const ProgramMap& program, const ShardingPlan& plan,
                         const CaseRun& run, std::vector<Finding>& findings) {
  TesteeAssembly assembly(a_case, program, plan, findings);
  for (const Observation& observation : run.observations) assembly.add(observation);
  assembly.finish();
  return std::move(assembly.evidence);
}

Evidence assemble_oracle(const ProgramMap& program, const CaseRun& run, std::vector<Finding>& findings) {
  Evidence evidence;
  EntrySink sink;
  sink.on_register = [&](const Place& place, const HostTensor& tensor) {
    evidence.values[place] = Value{tensor, false, false, {}};
  };
  sink.on_fact = [&](const Place& place, const Json& entry) { evidence.facts[place] = entry; };
  sink.on_finding = [&](Finding finding) { findings.push_back(std::move(finding)); };
  sink.on_item = [&](const ItemRead& item) {
    Value value{{}, item.described.none, false, item.described.requires_grad};
    if (!item.described.none) {
      if (item.described.pieces.size() != 1 ||
          item.described.pieces[0].length != numel_of(item.described.global_shape)) {
        findings.push_back(finding_at(VerdictKind::setup_error, "reference_incomplete", item.described.place,
                                      program,
                                      "the reference gave " + describe(item.described.place) +
                                          " in parts; it must give whole tensors"));
        return;
      }
      value.tensor = *item.tensors[0];
      value.tensor.shape = item.described.global_shape;
    }
    evidence.values[item.described.place] = std::move(value);
  };
  for (const Observation& observation : run.observations)
    read_entries(observation, program, true, VerdictKind::setup_error, sink);
  return evidence;
}

}  // namespace fsdp_cts
