// A case as a testee gets it: PROTOCOL.md §4. No axes, no expressions, no expectations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace fsdp_cts::sdk {

using Json = nlohmann::ordered_json;

struct Case {
  std::int64_t number = 0;
  std::string id;
  int world = 1;
  std::set<std::string> requirements;      // of the machine: "gpu", "cuda", "sim", "nccl", "compiler"
  std::filesystem::path scratch;           // exists; this rank's tensor files go here
  std::filesystem::path data;              // safetensors
  std::filesystem::path saved, continued;  // folders of checkpoints: what this case saves, and loads
  Json switches, models, plans, program;
  Json oracle;  // {reduction_order, precision}; null for a testee
};

// Throws std::invalid_argument naming the missing key.
Case parse_case(const Json& message);

// What running the case needs, as words an adapter can compare with what it has: "api:fully_shard",
// "verb:unshard", "scope:summon", "observe:trace", "strategy:NO_SHARD", "cpu_offload", "hybrid", "meta",
// "shard_dims", "dummy_group", "no_plan". A pure function of the case, so all ranks agree.
std::set<std::string> features(const Case& a_case);

}  // namespace fsdp_cts::sdk
