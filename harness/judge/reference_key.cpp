#include "harness/judge/reference_key.hpp"

#include <algorithm>
#include <array>

#include "harness/judge/truths.hpp"
#include "harness/protocol/sha256.hpp"

namespace fsdp_cts {
namespace {

constexpr std::array<std::string_view, 4> numberless = {"reshard_after_forward", "backward_prefetch",
                                                        "forward_prefetch", "limit_all_gathers"};

Json without_numberless(const Json& value) {
  if (value.is_array()) {
    Json result = Json::array();
    for (const Json& element : value) result.push_back(without_numberless(element));
    return result;
  }
  if (!value.is_object()) return value;
  Json result = Json::object();
  for (const auto& [key, part] : value.items()) {
    if (std::find(numberless.begin(), numberless.end(), key) == numberless.end())
      result[key] = without_numberless(part);
  }
  return result;
}

// Unit trees have all settings in them, and so may the text of an error. A backward that does not reshard leaves a unit that it has not come
// to as its forward has left it, which shows whole parameters or shards.
bool settings_show(const Case& a_case) {
  return compared_with(a_case, "reference").count("units") > 0 ||
         std::any_of(a_case.program.begin(), a_case.program.end(), [](const Json& step) {
           const std::string verb = step.value("verb", "");
           return verb == "attempt_begin" || verb == "set_reshard_after_backward";
         });
}

}  // namespace

std::string reference_key(const Case& a_case, const std::string& reduction_order,
                          const std::string& precision) {
  Json program = a_case.program;
  for (Json& step : program) step.erase("line");
  const Json plans = settings_show(a_case) ? a_case.plans : without_numberless(a_case.plans);
  const Json key{{"models", a_case.models},     {"plans", plans},
                 {"program", program},          {"data", a_case.data},
                 {"switches", a_case.switches}, {"world", a_case.world},
                 {"order", reduction_order},    {"precision", precision}};
  return sha256(key.dump());
}

}  // namespace fsdp_cts
