#include "harness/sdk/cpp/case.hpp"

#include <stdexcept>

namespace fsdp_cts::sdk {
namespace {

const Json& required(const Json& message, const char* key) {
  if (!message.contains(key))
    throw std::invalid_argument(std::string("a case message must have \"") + key + "\"");
  return message.at(key);
}

void add_unit_features(const Json& unit, std::set<std::string>& out) {
  if (unit.contains("sharding_strategy") && unit["sharding_strategy"].is_string()) {
    out.insert("strategy:" + unit["sharding_strategy"].get<std::string>());
  }
  if (unit.contains("cpu_offload") && unit["cpu_offload"] == true) out.insert("cpu_offload");
  if (unit.contains("auto_wrap") && !unit["auto_wrap"].is_null()) out.insert("auto_wrap");
  if (unit.contains("shard_dims")) out.insert("shard_dims");
  if (unit.contains("process_group")) {
    const Json& group = unit["process_group"];
    if (group == "self") out.insert("self_group");
    if (group.is_object()) out.insert("dummy_group");
  }
}

}  // namespace

Case parse_case(const Json& message) {
  Case result;
  result.number = required(message, "case");
  result.id = required(message, "id");
  result.world = required(message, "world");
  result.scratch = required(message, "scratch").get<std::string>();
  result.data = required(message, "data").get<std::string>();
  result.models = required(message, "models");
  result.program = required(message, "program");
  result.requirements = message.value("requires", std::set<std::string>{});
  result.switches = message.value("switches", Json::object());
  result.plans = message.value("plans", Json::object());
  const Json checkpoints = message.value("checkpoints", Json::object());
  result.saved = checkpoints.value("save", "");
  result.continued = checkpoints.value("load", "");
  result.oracle = message.value("oracle", Json());
  return result;
}

std::set<std::string> features(const Case& a_case) {
  std::set<std::string> out;
  for (const auto& [instance, plan] : a_case.plans.items()) {
    out.insert("api:" + plan.value("api", "fully_shard"));
    if (plan.contains("mesh") && plan["mesh"].is_array() && plan["mesh"].size() > 1) out.insert("hybrid");
    for (const Json& unit : plan.value("units", Json::array())) add_unit_features(unit, out);
  }
  if (a_case.plans.empty()) out.insert("no_plan");
  for (const Json& step : a_case.program) {
    const std::string verb = step.at("verb");
    out.insert("verb:" + verb);
    if (verb == "enter") out.insert("scope:" + step.at("scope").get<std::string>());
    if (verb == "build" && step.value("device", "cpu") == "meta") out.insert("meta");
    if (verb == "observe") {
      for (const Json& what : step.at("what")) {
        const std::string name = what;
        out.insert("observe:" + name.substr(0, name.find(':')));
      }
    }
  }
  return out;
}

}  // namespace fsdp_cts::sdk
