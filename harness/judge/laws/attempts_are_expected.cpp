#include <fmt/format.h>

#include <set>

#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {

void attempts_are_expected(const JudgeContext& context, Outcome& outcome) {
  std::set<std::string> named;
  for (const Json& expectation : context.a_case.expect) {
    for (const char* kind : {"error", "no_error"}) {
      if (auto found = expectation.find(kind); found != expectation.end())
        named.insert(found->at("attempt").get<std::string>());
    }
  }
  for (const auto& [place, fact] : context.testee.facts) {
    if (place.what != "attempt" || named.count(place.name)) continue;
    const Json error = fact.value("error", Json());
    if (error.is_null()) continue;
    const std::string error_text =
        fmt::format("{} ({:.160})", error.value("type", "?"), error.value("message", ""));
    outcome.findings.push_back(
        failure(context, place,
                {"unexpected_error",
                 fmt::format("attempt '{}' on rank {}: {}; the scenario names no error for it", place.name,
                             place.rank.value_or(0), error_text),
                 error_text, "no error"}));
    return;
  }
}

}  // namespace fsdp_cts
