#include "harness/cli/testees.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace fsdp_cts::cli {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string python() {
  if (std::string chosen = environment("FSDP_CTS_PYTHON"); !chosen.empty()) return chosen;
  const std::string cache = environment("XDG_CACHE_HOME");
  const fs::path made = (cache.empty() ? fs::path(environment("HOME")) / ".cache" : fs::path(cache)) /
                        "fsdp-cts" / "torch-2.11.0" / "bin" / "python";
  return fs::exists(made) ? made.string() : "python3";
}

std::string program(const Suite& suite, const char* name, const char* purpose) {
  const fs::path file = suite.bin / name;
  if (!fs::exists(file))
    throw UsageError(
        fmt::format("{} is not there; it is {} and built by `cmake --build` with LibTorch (see ci/build)",
                    file.string(), purpose));
  return file.string();
}

std::vector<std::string> command_of(const TesteeChoice& choice, const Suite& suite) {
  const std::string& spec = choice.spec;
  const auto cpp = [&] {
    const bool on_cpu = choice.device.empty() || choice.device == "cpu";
    return program(suite, on_cpu ? "fsdp_testee" : "fsdp_testee_cuda", "the C++ implementation's testee");
  };
  if (spec == "cpp") return {cpp()};
  if (spec.rfind("mutant:", 0) == 0) return {cpp(), "--mutant", spec.substr(7)};
  if (spec == "pytorch") {
    const fs::path testee = suite.root / "golden" / "pytorch_testee";
    if (!fs::exists(testee)) throw UsageError(testee.string() + " is not there");
    return {python(), testee.string()};
  }
  if (spec.find_first_of(" \t") == std::string::npos) return {spec};
  // Arguments given by --backend and --device become the shell's positional parameters.
  return {"/bin/sh", "-c", "exec " + spec + " \"$@\"", "testee"};
}

}  // namespace

Testee testee_from(const TesteeChoice& choice, const Suite& suite) {
  if (choice.spec.empty()) throw UsageError("--testee needs cpp, pytorch, mutant:ID or a command");
  Testee testee;
  testee.name = choice.spec;
  testee.command = command_of(choice, suite);
  for (const auto& [option, value] :
       {std::pair("--backend", choice.backend), std::pair("--device", choice.device)}) {
    if (value.empty()) continue;
    testee.command.push_back(option);
    testee.command.push_back(value);
  }
  return testee;
}

Testee oracle_of(const Suite& suite) {
  Testee oracle;
  oracle.name = "reference";
  oracle.command = {program(suite, "fsdp_reference", "the reference")};
  oracle.oracle = true;
  return oracle;
}

std::string quoted(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%") ==
          std::string::npos)
    return word;
  std::string result = "'";
  for (char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string testee_arguments(const TesteeChoice& choice) {
  std::string text;
  if (choice.spec != "cpp") text += " --testee " + quoted(choice.spec);
  if (!choice.backend.empty()) text += " --backend " + quoted(choice.backend);
  if (!choice.device.empty()) text += " --device " + quoted(choice.device);
  return text;
}

}  // namespace fsdp_cts::cli
