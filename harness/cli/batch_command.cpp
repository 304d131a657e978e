#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>

#include "harness/cli/commands.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts::cli {
namespace {

// 0 where all runs ended with 0 or 77, else 2 where one could not be run, else 1.
int together(int before, int code) {
  return std::max(before, code == 77 ? 0 : code);
}

int run_lines(std::istream& lines, Shared& shared) {
  int all = 0;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    CLI::App app{"A line of a batch"};
    app.require_subcommand(1);
    add_run(app, shared);
    const int code = outcome(app, shared, [&] { app.parse("run " + line); });
    std::cout << fmt::format("batch: line {} ended with exit code {}", number, code) << std::endl;
    all = together(all, code);
  }
  return all;
}

}  // namespace

void add_batch(CLI::App& app, Shared& shared) {
  auto file = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "batch",
      "Runs that follow one another: each line holds the arguments of a `run`. Libraries are loaded once for "
      "all lines whose testees are one program, and for the reference");
  command->add_option("FILE", *file, "The lines; - is the standard input, # begins a comment")->required();
  command->footer(
      "A line `batch: line N ended with exit code C` is printed behind each run. Exit code: the largest of "
      "theirs, where 77 counts as 0.\n"
      "Example:\n"
      "  printf '%s\\n' \"'F2MP/*' --testee mutant:sum_for_mean\" \"'F2MP/*' --testee mutant:stale_gather\" "
      "|\n"
      "    fsdp-cts batch -");
  command->callback([file, &shared] {
    if (*file == "-") {
      shared.exit_code = run_lines(std::cin, shared);
      return;
    }
    std::ifstream lines(*file);
    if (!lines) throw UsageError(*file + " cannot be read");
    shared.exit_code = run_lines(lines, shared);
  });
}

}  // namespace fsdp_cts::cli
