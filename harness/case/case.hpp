// A case: a scenario with every axis fixed, every expression evaluated, every loop unrolled. See
// conformance/LANGUAGE.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/protocol/tensor.hpp"

namespace fsdp_cts {

using Json = nlohmann::ordered_json;

enum class Lane { exact, tolerance, structure };

struct Case {
  std::string id;        // "F2MP/Class/method#exact[axis=value,world=2]"
  std::string scenario;  // "F2MP/Class/method#exact"
  std::string seed;      // "F2MP"
  std::string method;    // "F2MP/Class/method": the upstream method, also for twins
  int world = 0;
  Lane lane = Lane::tolerance;
  std::vector<std::string> requires_;      // "gpu", "nccl", "compiler"
  int seed_cases = 0;                      // upstream cases this one stands for; 0 for additions
  std::optional<std::string> skip_reason;  // upstream returns early here
  std::string cpu_form;                    // what is done instead of what only a GPU can do; else empty
  bool quick = false;
  std::map<std::string, std::string> axes;  // as printed in the id, world excluded

  std::filesystem::path file;  // scenario file, for messages
  std::string why;
  std::vector<std::string> clauses;
  std::vector<std::string> quirks;
  std::string source;  // "seed 000, lines 62-138 (upstream path)"

  Json switches, models, plans, program, data, expect, minimum;  // resolved; LANGUAGE.md §3-§7
};

// A mistake in a data file: "file:line: what was found; what is allowed".
class ScenarioError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// All cases of all scenarios under `conformance` (folder with scenarios/ and models/), in file and axis
// order. Throws ScenarioError listing every mistake found, not only the first.
std::vector<Case> load_cases(const std::filesystem::path& conformance);

// One parameter or buffer of a resolved module, in registration order, tied ones once.
struct StateShape {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::float32;
  bool is_buffer = false;
  std::string module_type;  // owner's type: norms have their own initial values
};
std::vector<StateShape> module_state(const Json& resolved_module);

// Evaluates the case's data section: names as in PROTOCOL.md §4. The same case gives the same bytes on every
// machine.
TensorMap make_data(const Case& a_case);

// What a testee's answer depends on: hash of models, plans, program, data, switches. Golden recordings are
// bound to it.
std::string fingerprint(const Case& a_case);

// The JSON that goes to a testee, without number, scratch and data file (PROTOCOL.md §4).
Json case_message(const Case& a_case);

}  // namespace fsdp_cts
