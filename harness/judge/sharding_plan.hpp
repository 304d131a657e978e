// What a case's plans say about who shares a tensor with whom. Read from the case, never from the testee.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// Groups of ranks, each of which holds the tensor once.
struct ShardGroups {
  std::vector<std::vector<int>> groups;
  bool replicas = false;  // the mesh replicates: all groups must hold equal bits. Otherwise each group has a
                          // value of its own
  std::string replica_clause = {};  // what asks for that
  std::size_t size() const { return groups.empty() ? 0 : groups.front().size(); }
};

// A unit asked for through `wrap()` counts with the settings that it gets in the end, or not at all.
class ShardingPlan {
 public:
  explicit ShardingPlan(const Case& a_case);

  // Over which ranks `parameter` of `model` is sharded (clauses FS-SHARD-1, FP-FLAT-1). World-wide without a
  // plan.
  ShardGroups shard_groups(const std::string& model, const std::string& parameter) const;
  // After forward with an integer reshard_after_forward: shards over smaller groups, each complete. Empty
  // without one.
  std::vector<ShardGroups> post_forward_groups(const std::string& model) const;
  // True when the plan must leave less than the whole model on some rank.
  bool must_shard(const std::string& model) const;

  // The unit (one entry of the plan's `units`) that owns a parameter: the one with the longest module path
  // before its name. Null without a plan or when no unit reaches it.
  const Json* unit_of(const std::string& model, const std::string& parameter) const;
  const Json* plan(const std::string& model) const;
  int world() const { return world_; }

 private:
  ShardGroups mesh_groups(const Json& plan) const;
  const Json plans_;
  int world_;
  std::map<std::string, std::vector<std::string>> parameters_;  // names by model
};

// "a.b" is inside module "" and "a", not inside "a.bc".
bool inside_module(const std::string& parameter, const std::string& module);
// Whether a unit entry leaves the parameter out, by its own name or its module's.
bool ignores(const Json& unit, const std::string& parameter);
// The modules one unit entry names, as strings.
std::vector<std::string> unit_modules(const Json& unit);

}  // namespace fsdp_cts
