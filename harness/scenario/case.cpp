#include "harness/scenario/case.hpp"

#include <algorithm>
#include <stdexcept>

#include "harness/protocol/sha256.hpp"

namespace fsdp_cts {
namespace {

// Raised when make_data gives other values for the same data section.
constexpr int formula_version = 1;

}  // namespace

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::exact:
      return "exact";
    case Lane::tolerance:
      return "tolerance";
    case Lane::structure:
      return "structure";
  }
  throw std::logic_error("a lane that does not exist");
}

std::string fingerprint(const Case& a_case) {
  // In the sorted form: the order in which somebody writes keys changes no answer.
  nlohmann::json answered = nlohmann::json::object();
  answered["formula"] = formula_version;
  answered["world"] = a_case.world;
  answered["models"] = a_case.models;
  answered["plans"] = a_case.plans;
  answered["program"] = a_case.program;
  answered["data"] = a_case.data;
  answered["switches"] = a_case.switches;
  if (a_case.damage) answered["damage"] = {a_case.damage->file, a_case.damage->how};
  // Line numbers move with every comment; they change none either.
  for (auto& step : answered["program"]) step.erase("line");
  return sha256(answered.dump());
}

bool needs(const Case& a_case, const std::string& what) {
  return std::find(a_case.requires_.begin(), a_case.requires_.end(), what) != a_case.requires_.end();
}

bool saves_checkpoint(const Case& a_case) {
  return std::any_of(a_case.program.begin(), a_case.program.end(),
                     [](const Json& step) { return step["verb"] == "save_checkpoint"; });
}

Json case_message(const Case& a_case) {
  return {{"type", "case"},
          {"id", a_case.id},
          {"world", a_case.world},
          {"requires", a_case.requires_},
          {"switches", a_case.switches},
          {"models", a_case.models},
          {"plans", a_case.plans},
          {"program", a_case.program}};
}

}  // namespace fsdp_cts
