#include <fmt/format.h>

#include <iostream>

#include "harness/cli/commands.hpp"
#include "harness/cli/suite.hpp"
#include "harness/report/ndjson.hpp"

namespace fsdp_cts::cli {
namespace {

// Only what was judged and passed, or deviates as an expectation file announces, reaches a level.
std::string reached(const Report& report) {
  const std::string level = report.header.at("selection").at("level").get<std::string>();
  if (report.footer.at("exit_code") != 0) return "none: not everything is as expected";
  if (level == "partial") return "none: only a part of the suite was selected";
  const auto& verdicts = report.footer.at("verdicts");
  for (const char* verdict : {"unsupported", "xfail"}) {
    if (verdicts.contains(verdict))
      return fmt::format("none: {} cases are {}", verdicts[verdict].get<int>(), verdict);
  }
  return level + (verdicts.contains("skipped")
                      ? fmt::format(" ({} cases cannot run on that machine)", verdicts["skipped"].get<int>())
                      : "");
}

}  // namespace

void add_verify(CLI::App& app, Shared& shared) {
  auto file = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("verify", "Is a report complete and untampered, and which level does it reach?");
  command->add_option("FILE", *file, "A report written by run --report")->required();
  command->footer(
      "Exit codes: 0 complete and as expected, 1 complete but not as expected, 2 incomplete, tampered or no "
      "report.\nExample:\n  fsdp-cts verify out/conformance.ndjson");
  command->callback([file, &shared] {
    try {
      const Report report = read_report(*file);
      const int code = report.footer.at("exit_code").get<int>();
      std::cout << fmt::format("complete and untampered: {} cases on {}, suite {}, {}\n", report.cases.size(),
                               report.header.at("testee").at("name").get<std::string>(),
                               report.header.at("suite").get<std::string>(),
                               report.footer.at("verdicts").dump());
      std::cout << "level: " << reached(report) << "\n";
      shared.exit_code = code == 0 || code == 77 ? 0 : 1;
    } catch (const ReportError& error) {
      std::cerr << fmt::format("fsdp-cts: {} ({})\n", error.what(), error.code);
      shared.exit_code = 2;
    } catch (const Json::exception& error) {
      std::cerr << fmt::format("fsdp-cts: the report lacks what it must have: {}\n", error.what());
      shared.exit_code = 2;
    }
  });
}

}  // namespace fsdp_cts::cli
