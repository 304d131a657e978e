// error, no_error: how an attempt must end on which ranks. warning, no_warning: what must, or must not, have
// been said.
#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/expectations/kinds.hpp"
#include "harness/protocol/pattern.hpp"

namespace fsdp_cts {
namespace {

std::string error_text(const Json& error) {
  if (error.is_null()) return "no error";
  return fmt::format("{} in {} ({:.160})", error.value("type", "?"), error.value("phase", "?"),
                     error.value("message", ""));
}

std::vector<std::pair<Place, const Json*>> attempts_named(const Json& arguments, const Selection& selection,
                                                          const JudgeContext& context) {
  auto facts = selected_facts(context, selection, "attempt");
  const std::string name = arguments.at("attempt").get<std::string>();
  std::erase_if(facts, [&](const auto& fact) { return fact.first.name != name; });
  return facts;
}

}  // namespace

void check_error(const Json& arguments, const Selection& selection, const JudgeContext& context,
                 Outcome& outcome) {
  const auto facts = attempts_named(arguments, selection, context);
  if (facts.empty())
    return nothing_observed(outcome, "attempt '" + arguments.at("attempt").get<std::string>() + "'");
  const auto ranks = ranks_concerned(arguments, context.a_case);
  for (const auto& each : facts) {
    const Place& place = each.first;  // no structured binding: Clang 14 cannot capture one
    const Json& error = each.second->at("error");
    const bool wanted = ranks.contains(place.rank.value_or(0));
    auto fail = [&](const char* code, const std::string& expected) {
      outcome.findings.push_back(
          failure(context, place,
                  {code,
                   fmt::format("{} '{}' on rank {}: {}; expected {}", "attempt", place.name,
                               place.rank.value_or(0), error_text(error), expected),
                   error_text(error), expected}));
    };
    if (!wanted) {
      if (!error.is_null()) return fail("unexpected_error", "no error on this rank");
      continue;
    }
    const std::string type = arguments.value("type", std::string());
    const std::string message = arguments.value("message", std::string());
    const std::string phase = arguments.value("phase", std::string());
    if (error.is_null())
      return fail("no_error", fmt::format("{} matching '{}'", type.empty() ? "an error" : type, message));
    if (!type.empty() && error.value("type", "") != type) return fail("error_type", type);
    if (!message.empty() && !Pattern(message).found_in(error.value("message", std::string())))
      return fail("error_message", fmt::format("a message matching '{}'", message));
    if (!phase.empty() && error.value("phase", "") != phase) return fail("error_phase", "phase " + phase);
  }
}

void check_no_error(const Json& arguments, const Selection& selection, const JudgeContext& context,
                    Outcome& outcome) {
  const auto facts = attempts_named(arguments, selection, context);
  if (facts.empty())
    return nothing_observed(outcome, "attempt '" + arguments.at("attempt").get<std::string>() + "'");
  for (const auto& [place, fact] : facts) {
    const Json& error = fact->at("error");
    if (error.is_null()) continue;
    outcome.findings.push_back(failure(context, place,
                                       {"unexpected_error",
                                        fmt::format("attempt '{}' on rank {}: {}; expected no error",
                                                    place.name, place.rank.value_or(0), error_text(error)),
                                        error_text(error), "no error"}));
    return;
  }
}

namespace {

long count_matching(const Json& warnings, const std::string& message, const std::string& category) {
  const Pattern pattern(message);
  return std::count_if(warnings.begin(), warnings.end(), [&](const Json& warning) {
    return (category.empty() || warning.value("category", "") == category) &&
           pattern.found_in(warning.value("message", std::string()));
  });
}

std::map<int, long> warnings_by_rank(const Json& arguments, const Selection& selection,
                                     const JudgeContext& context) {
  std::map<int, long> counts;
  for (const auto& [place, fact] : selected_facts(context, selection, "warnings")) {
    counts[place.rank.value_or(0)] += count_matching(fact->at("warnings"), arguments.at("message"),
                                                     arguments.value("category", std::string()));
  }
  return counts;
}

}  // namespace

void check_warning(const Json& arguments, const Selection& selection, const JudgeContext& context,
                   Outcome& outcome) {
  const auto counts = warnings_by_rank(arguments, selection, context);
  if (counts.empty()) return nothing_observed(outcome, "warnings");
  const long at_least = arguments.value("at_least", 1L);
  for (int rank : ranks_concerned(arguments, context.a_case)) {
    const long count = counts.count(rank) ? counts.at(rank) : 0;
    if (count >= at_least) continue;
    Place place;
    place.step = context.program.size();
    place.what = "warnings";
    place.rank = rank;
    outcome.findings.push_back(
        failure(context, place,
                {"warning_missing",
                 fmt::format("rank {} warned {} times with a message matching '{}', at least {} are due",
                             rank, count, arguments.at("message").get<std::string>(), at_least),
                 count, at_least}));
    return;
  }
}

void check_no_warning(const Json& arguments, const Selection& selection, const JudgeContext& context,
                      Outcome& outcome) {
  const auto counts = warnings_by_rank(arguments, selection, context);
  if (counts.empty()) return nothing_observed(outcome, "warnings");
  for (const auto& [rank, count] : counts) {
    if (count == 0) continue;
    Place place;
    place.step = context.program.size();
    place.what = "warnings";
    place.rank = rank;
    outcome.findings.push_back(failure(context, place,
                                       {"unexpected_warning",
                                        fmt::format("rank {} warned with a message matching '{}'", rank,
                                                    arguments.at("message").get<std::string>()),
                                        count, 0}));
    return;
  }
}

}  // namespace fsdp_cts
