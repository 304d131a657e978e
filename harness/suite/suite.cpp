#include "harness/suite/suite.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "harness/scenario/catalogue/filter.hpp"
#include "harness/scenario/catalogue/lint.hpp"
#include "harness/scenario/catalogue/load.hpp"

namespace fsdp_cts {
namespace {

// Ids that share the most with what was typed: a hint, nothing more.
std::string nearest(const std::vector<Case>& cases, const std::string& term) {
  std::string best;
  std::size_t best_length = 0;
  for (const Case& each : cases) {
    const auto part = each.scenario.substr(each.scenario.rfind('/') + 1);
    std::size_t length = 0;
    for (std::size_t from = 0; from < term.size(); ++from) {
      for (std::size_t size = part.size(); size > best_length && size > length; --size) {
        if (part.find(term.substr(from, size)) != std::string::npos && term.size() - from >= size)
          length = size;
      }
    }
    if (length > best_length && length >= 4) {
      best_length = length;
      best = each.scenario;
    }
  }
  return best;
}

template <typename Load>
auto usable(const Load& load) {
  try {
    return load();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

bool is_complete(const FilterResult& result) {
  return result.unmatched.empty() && !result.cases.empty();
}

// Throws UsageError with a hint when nothing is selected. `place` is where to see all cases.
std::vector<Case> selected(const std::vector<Case>& all, const std::vector<std::string>& filters,
                           const std::string& place) {
  FilterResult result = usable([&] { return select_cases(all, filters); });
  if (is_complete(result)) return std::move(result.cases);
  std::string hint;
  for (const std::string& term : result.unmatched) {
    const std::string close = nearest(all, term);
    hint += fmt::format("\n  '{}' matches no case{}", term,
                        close.empty() ? "" : fmt::format("; did you mean '{}'?", close));
  }
  // A term may match, only not together with the others.
  if (hint.empty()) hint = "\n  each filter matches something, but no case matches all of them";
  throw UsageError(
      fmt::format("no case is selected{}\n  see {} for all {} cases; a FILTER is a glob over "
                  "ids, or seed:F2MP, lane:exact, world:2, label:gpu",
                  hint, place, all.size()));
}

// What some of the suite's files gave; where that is too little it is said, with all cases, what a filter may have
// meant.
std::vector<Case> complete(FilterResult result, const Suite& suite, const std::vector<std::string>& filters) {
  if (is_complete(result)) return std::move(result.cases);
  return selected(load_cases(suite.conformance()), filters, "`fsdp-cts list`");
}

}  // namespace

Suite find_suite(const std::string& root_option) {
  Suite suite;
  const char* from_environment = std::getenv("FSDP_CTS_ROOT");
  suite.root = !root_option.empty()                    ? root_option
               : from_environment && *from_environment ? from_environment
                                                       : FSDP_CTS_SOURCE_DIR;
  suite.bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  if (!std::filesystem::is_directory(suite.conformance())) {
    throw UsageError(fmt::format(
        "there are no scenarios under {}; name the folder of fsdp-cts with --root or FSDP_CTS_ROOT",
        suite.root.string()));
  }
  return suite;
}

std::string suite_version() {
  return FSDP_CTS_VERSION;
}

std::vector<Case> select(const Suite& suite, const std::vector<std::string>& filters) {
  // Loads no more than the filters ask for.
  return complete(usable([&] { return load_selected_cases(suite.conformance(), filters); }), suite, filters);
}

std::vector<Case> select_checked(const Suite& suite, const std::vector<std::string>& filters) {
  if (filters.empty()) {
    std::vector<Case> all = load_cases(suite.conformance());
    check_suite(suite.conformance(), all);
    return all;
  }
  const auto cases = usable([&] { return load_cases_of_files(suite.conformance(), filters); });
  check_files(suite.conformance(), cases);
  return complete(select_cases(cases, filters), suite, filters);
}

std::vector<Case> select_from(const std::filesystem::path& scenarios, const Suite& suite,
                              const std::vector<std::string>& filters) {
  if (!std::filesystem::exists(scenarios))
    throw UsageError(
        fmt::format("{} is not there; --scenarios takes a file or a folder", scenarios.string()));
  FilterResult result =
      usable([&] { return load_selected_scenario_files(scenarios, suite.conformance(), filters); });
  if (is_complete(result)) return std::move(result.cases);
  return selected(load_scenario_files(scenarios, suite.conformance()), filters, scenarios.string());
}

}  // namespace fsdp_cts
