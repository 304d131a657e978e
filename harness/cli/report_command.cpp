#include <iostream>

#include "harness/cli/commands.hpp"
#include "harness/report/console.hpp"
#include "harness/report/file_formats.hpp"
#include "harness/report/ndjson.hpp"
#include "harness/scenario/catalogue/explain.hpp"
#include "harness/scenario/catalogue/load.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts::cli {
namespace {

// A report may be from another version of the suite: what it cannot explain it leaves out.
Explanations explanations(const std::string& root) {
  Explanations texts;
  try {
    for (const Case& each : load_cases(find_suite(root).conformance())) texts[each.id] = explain_case(each);
  } catch (const std::exception& error) {
    std::cerr << "note: cases are not explained in words (" << error.what() << ")\n";
  }
  return texts;
}

}  // namespace

void add_report(CLI::App& app, Shared& shared) {
  struct Options {
    std::string file;
    FormatFiles formats;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("report", "Print the summary of a report file, or make another format from it");
  command->add_option("FILE", options->file, "A report written by run --report")->required();
  for (const FileFormat& format : file_formats())
    command->add_option(format.option, options->formats[format.option], format.about);
  command->add_flag("--json", options->json, "Print header, cases and footer as one JSON object");
  command->footer(
      "Examples:\n  fsdp-cts report out/conformance.ndjson\n  fsdp-cts report out/conformance.ndjson --html "
      "out/conformance.html");
  command->callback([options, &shared] {
    const Report report = read_report(options->file);
    if (any_format(options->formats)) write_formats(options->formats, report, explanations(shared.root));
    if (options->json) {
      std::cout << Json{{"header", report.header}, {"cases", report.cases}, {"footer", report.footer}}.dump(1)
                << "\n";
    } else if (!any_format(options->formats)) {
      print_summary(std::cout, report);
    }
  });
}

}  // namespace fsdp_cts::cli
