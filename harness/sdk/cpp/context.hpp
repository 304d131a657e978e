// What an adapter may know and say while a case runs.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/sdk/cpp/case.hpp"
#include "harness/sdk/cpp/data.hpp"
#include "harness/sdk/cpp/recorder.hpp"
#include "harness/sdk/cpp/tensors.hpp"
#include "harness/sdk/cpp/trace.hpp"

namespace fsdp_cts::sdk {

struct Warning {
  std::string category;  // Python's class name: "UserWarning", "FutureWarning", …
  std::string message;
};

struct Context {
  int rank = 0, world = 1;
  Case a_case;
  Data data;
  std::shared_ptr<Recorder> recorder;
  std::shared_ptr<Trace> trace = std::make_shared<Trace>();  // where a tap notes collectives
  // PROTOCOL.md §3 phases; the interpreter sets the verb's, an adapter may narrow it ("lazy_init") until the
  // verb ends.
  std::string phase = "other";
  int step = -1;
  std::map<std::string, Tensors> registers;
  std::vector<Warning> warnings;  // since the last `warnings` observation; c10's own warnings land here too

  void warn(std::string category, std::string message) {
    warnings.push_back({std::move(category), std::move(message)});
  }
};

}  // namespace fsdp_cts::sdk
