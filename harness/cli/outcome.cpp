#include <fmt/format.h>

#include <cstdio>

#include "harness/cli/commands.hpp"
#include "harness/runner/interruption.hpp"
#include "harness/scenario/read/mistakes.hpp"
#include "harness/suite/suite.hpp"

namespace fsdp_cts::cli {

int outcome(CLI::App& app, const Shared& shared, const std::function<void()>& parse) {
  try {
    parse();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const UsageError& error) {
    fmt::print(stderr, "fsdp-cts: {}\n", error.what());
    return 2;
  } catch (const ScenarioError& error) {
    fmt::print(stderr, "fsdp-cts: the scenarios have mistakes:\n{}\n", error.what());
    return 2;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fsdp-cts: {}\n", error.what());
    return 2;
  }
  return shared.exit_code;
}

}  // namespace fsdp_cts::cli
