// A case: a scenario with every axis fixed, every expression evaluated, every loop unrolled. See
// conformance/LANGUAGE.md.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp_cts {

using Json = nlohmann::ordered_json;

// What befalls a copy of a checkpoint before it is loaded. Of its regular files: "first" and "last" by name,
// or the "largest", the first of several; it is "removed", "truncated" to half of its bytes, "altered" in its last byte, or "extended" by some.
struct Damage {
  std::string file, how;
};

enum class Lane { exact, tolerance, structure };
std::string_view lane_name(Lane lane);

struct Case {
  std::string id;        // "F2MP/Class/method#exact[axis=value,world=2]"
  std::string scenario;  // "F2MP/Class/method#exact"
  std::string seed;      // "F2MP"
  std::string method;    // "F2MP/Class/method": the upstream method, also for twins
  int world = 0;
  Lane lane = Lane::tolerance;
  std::vector<std::string> requires_;      // "gpu", "cuda", "sim", "nccl", "compiler"
  int seed_cases = 0;                      // upstream cases this one stands for; 0 for additions
  std::optional<std::string> skip_reason;  // upstream returns early here
  std::string cpu_form;                    // what is done instead of what only a GPU can do; else empty
  bool quick = false;
  std::map<std::string, std::string> axes;  // as printed in the id, world excluded

  std::string continues;         // id of the case whose checkpoint this one loads; else empty
  std::optional<Damage> damage;  // none: as it was saved

  std::filesystem::path file;  // scenario file, for messages
  std::string why;
  std::vector<std::string> clauses;
  std::vector<std::string> quirks;
  std::string source;  // "seed 000, lines 62-138 (upstream path)"

  Json switches, models, plans, program, data, expect, minimum;  // resolved; LANGUAGE.md §3-§7
};

// What a testee's answer depends on: hash of models, plans, program, data, switches, damage. Golden recordings are
// bound to it.
std::string fingerprint(const Case& a_case);

bool saves_checkpoint(const Case& a_case);
// Whether `what` stands in its `requires`: "gpu", "cuda", "compiler", …
bool needs(const Case& a_case, const std::string& what);

// The JSON that goes to a testee, without number, scratch and data file (PROTOCOL.md §4).
Json case_message(const Case& a_case);

}  // namespace fsdp_cts
