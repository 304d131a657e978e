#include <fmt/format.h>

#include <iostream>

#include "harness/cli/commands.hpp"
#include "harness/report/ndjson.hpp"
#include "harness/suite/must_run.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts::cli {
namespace {

struct Options {
  std::string file, level;
  bool partial = false;
};

struct Level {
  std::string text;
  int exit_code = 1;
};

// How much the report may claim, beside its level.
std::string notes(const Json& verdicts) {
  std::string text;
  if (verdicts.contains("skipped"))
    text += fmt::format("{} cases cannot run on that machine", verdicts["skipped"].get<int>());
  if (verdicts.contains("xfail"))
    text += fmt::format("{}{} known deviations", text.empty() ? "" : ", ", verdicts["xfail"].get<int>());
  return text.empty() ? "" : " (" + text + ")";
}

// Only what was judged and passed, or deviates as announced, reaches a level.
Level reached(const Report& report, const Options& options, const Suite& suite) {
  const int code = report.footer.at("exit_code").get<int>();
  const Json& verdicts = report.footer.at("verdicts");
  if (code == 77) return {"none: every case was skipped on that machine", 77};
  if (code != 0) return {"none: not everything is as expected", 1};
  if (!verdicts.contains("pass")) return {"none: nothing passed", 1};
  const std::string ran = report.header.at("selection").at("level").get<std::string>();
  const std::string level = options.level.empty() ? ran : options.level;
  if (level == "partial") {
    if (options.partial) return {"none asked for: a part of the suite, as expected" + notes(verdicts), 0};
    return {"none: only a part of the suite was selected (verify --partial accepts that)", 1};
  }
  const std::vector<std::string> missing = named_level(suite, level).missing(report.cases);
  if (!missing.empty())
    return {fmt::format("none: of '{}', {}{}", level, missing.front(),
                        missing.size() > 1 ? fmt::format("; and {} more", missing.size() - 1) : ""),
            1};
  return {level + notes(verdicts), 0};
}

}  // namespace

void add_verify(CLI::App& app, Shared& shared) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("verify", "Is a report complete, and which level does it reach?");
  command->add_option("FILE", options->file, "A report written by run --report")->required();
  CLI::Option* level = command->add_option(
      "--level", options->level, "The level that the report must reach (default: the one that was run)");
  command->add_flag("--partial", options->partial, "A part of the suite will do, if it is as expected")
      ->excludes(level);
  command->footer(
      "Exit codes: 0 complete and the level is reached, 1 complete and it is not, 77 everything was skipped, "
      "2 "
      "incomplete, altered or no report.\n"
      "The hash shows that a report is whole and was not altered by accident. It has no key, so anybody who "
      "edits a "
      "report\ncan compute it again: trust a report as far as who made it, or run the suite (ci/gate).\n"
      "Examples:\n  fsdp-cts verify out/conformance.ndjson\n  fsdp-cts verify mine.ndjson --level "
      "fully_shard");
  command->callback([options, &shared] {
    try {
      const Report report = read_report(options->file);
      const Level claim = reached(report, *options, find_suite(shared.root));
      std::cout << fmt::format("complete, and the hash is that of its lines: {} cases on {}, suite {}, {}\n",
                               report.cases.size(), report.header.at("testee").at("name").get<std::string>(),
                               report.header.at("suite").get<std::string>(),
                               report.footer.at("verdicts").dump());
      std::cout << "level: " << claim.text << "\n";
      shared.exit_code = claim.exit_code;
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
