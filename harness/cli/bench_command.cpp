#include <fmt/format.h>

#include <iostream>

#include "harness/cli/commands.hpp"
#include "harness/suite/suite.hpp"
#include "harness/suite/testees.hpp"

namespace fsdp_cts::cli {

void add_bench(CLI::App& app, Shared& shared) {
  auto arguments = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("bench", "Run the benchmarks (ci/bench); arguments are passed on");
  command->add_option("ARGUMENTS", *arguments, "For ci/bench, see `fsdp-cts bench -- --help`");
  command->footer("Example:\n  fsdp-cts bench");
  command->callback([arguments, &shared] {
    const Suite suite = find_suite(shared.root);
    const auto script = suite.root / "ci" / "bench";
    if (!std::filesystem::exists(script)) throw UsageError(script.string() + " is not there");
    std::string line = fmt::format("FSDP_CTS_BIN={} {}", quoted(suite.bin.string()), quoted(script.string()));
    for (const std::string& argument : *arguments) line += " " + quoted(argument);
    const int status = std::system(line.c_str());
    shared.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  });
}

}  // namespace fsdp_cts::cli
