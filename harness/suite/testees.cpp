#include "harness/suite/testees.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>

#include "harness/sim/machines.hpp"

namespace fsdp_cts {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string default_python() {
  if (std::string chosen = environment("FSDP_CTS_PYTHON"); !chosen.empty()) return chosen;
  const std::string cache = environment("XDG_CACHE_HOME");
  const fs::path made = (cache.empty() ? fs::path(environment("HOME")) / ".cache" : fs::path(cache)) /
                        "fsdp-cts" / "torch-2.11.0" / "bin" / "python";
  return fs::exists(made) ? made.string() : "python3";
}

std::string program(const Suite& suite, const std::string& name, const char* purpose) {
  const fs::path file = suite.bin / name;
  if (!fs::exists(file))
    throw UsageError(
        fmt::format("{} is not there; it is {} and built by `cmake --build` with LibTorch (see ci/build)",
                    file.string(), purpose));
  return file.string();
}

// What brings our shared memory into PyTorch. It is built for one version of PyTorch, which its name says.
std::string c10d_module(const Suite& suite, const std::string& python) {
  const std::string installed = torch_version(python);
  const std::string minor = installed.substr(0, installed.find('.', installed.find('.') + 1));
  const fs::path file = suite.bin / fmt::format("fsdp_c10d-torch{}.so", minor);
  if (!fs::exists(file))
    throw UsageError(fmt::format(
        "{} is not there, so the PyTorch {} of {} cannot use --backend shm. `cmake --build` makes "
        "it for the PyTorch that LibTorch is taken from, and where Python.h is (ci/setup). "
        "Without --backend PyTorch uses Gloo",
        file.string(), installed, python));
  return file.string();
}

// The folder in which Python finds the simulated accelerator.
std::string sim_package(const Suite& suite) {
  const fs::path folder = suite.bin.parent_path() / "python";
  if (!fs::exists(folder / "fsdp_sim" / "_binding.so"))
    throw UsageError(fmt::format(
        "{} is not there, so there is no --device sim. `cmake --build` makes it for the PyTorch that "
        "LibTorch is taken from, where Python.h is (ci/setup)",
        (folder / "fsdp_sim" / "_binding.so").string()));
  return folder.string();
}

void choose_python(TesteeChoice& choice) {
  if (choice.spec == "pytorch") {
    if (choice.python.empty()) choice.python = default_python();
  } else if (!choice.python.empty()) {
    throw UsageError(fmt::format("--python is for --testee pytorch; '{}' was asked for", choice.spec));
  }
}

bool is_ours(const std::string& spec) {
  return spec == "cpp" || spec == "pytorch" || spec.starts_with("mutant:");
}

void check_device(const TesteeChoice& choice) {
  if (!is_ours(choice.spec)) return;  // what a foreign testee offers is its own affair
  std::vector<std::string> offered = {"cpu", "cuda", "sim"};
  if (choice.spec.starts_with("mutant:")) offered = {"cpu", "sim"};
  if (choice.device.empty() || std::find(offered.begin(), offered.end(), choice.device) != offered.end())
    return;
  throw UsageError(fmt::format("--testee {} has no device '{}'; there are {}", choice.spec, choice.device,
                               fmt::join(offered, ", ")));
}

void check_simulation(const TesteeChoice& choice) {
  for (const auto& [option, value] :
       {std::pair("--sim-machine", choice.sim_machine), std::pair("--sim-trace", choice.sim_trace),
        std::pair("--sim-memory", choice.sim_memory)}) {
    if (!value.empty() && choice.device != "sim")
      throw UsageError(fmt::format("{} is of the simulated accelerator, and needs --device sim", option));
  }
  if (!choice.sim_machine.empty() && sim::find_machine(choice.sim_machine) == nullptr)
    throw UsageError(fmt::format("--sim-machine: there is no machine '{}'; there are {}", choice.sim_machine,
                                 sim::table_of_machines()));
  if (!choice.sim_trace.empty() && choice.sim_machine.empty())
    throw UsageError(
        fmt::format("--sim-trace is in virtual time, and needs --sim-machine: {}", sim::table_of_machines()));
  if (!choice.sim_memory.empty() && !bytes_in(choice.sim_memory))
    throw UsageError(
        fmt::format("--sim-memory needs a size above 0 such as 64MB, 512MiB or a number of bytes, not '{}'",
                    choice.sim_memory));
}

// What a CUDA library has begun in one process does not go on in its child.
bool can_fork(const TesteeChoice& choice) {
  return choice.fork_server || (is_ours(choice.spec) && choice.device != "cuda");
}

std::vector<std::string> command_of(const TesteeChoice& choice, const Suite& suite) {
  const std::string& spec = choice.spec;
  if (spec == "cpp") {
    const std::string other = choice.device.empty() || choice.device == "cpu" ? "" : "_" + choice.device;
    return {program(suite, "fsdp_testee" + other, "the C++ implementation's testee")};
  }
  if (spec.starts_with("mutant:")) {
    const std::string other = choice.device == "sim" ? "_sim" : "";
    return {program(suite, "fsdp_testee_mutants" + other, "the C++ implementation with faults")};
  }
  if (spec == "pytorch") {
    const fs::path testee = suite.root / "golden" / "pytorch_testee";
    if (!fs::exists(testee)) throw UsageError(testee.string() + " is not there");
    std::vector<std::string> command{choice.python, testee.string()};
    if (choice.backend == "shm")
      command.insert(command.end(), {"--c10d-module", c10d_module(suite, choice.python)});
    if (choice.device == "sim") command.insert(command.end(), {"--sim-package", sim_package(suite)});
    return command;
  }
  if (spec.find_first_of(" \t") == std::string::npos) return {spec};
  // Arguments given by --backend and --device become the shell's positional parameters.
  return {"/bin/sh", "-c", "exec " + spec + " \"$@\"", "testee"};
}

}  // namespace

void settle(TesteeChoice& choice) {
  choose_python(choice);
  check_device(choice);
  check_simulation(choice);
}

std::string backend_of(const TesteeChoice& choice) {
  if (!choice.backend.empty() || !is_ours(choice.spec)) return choice.backend;
  return choice.device == "cuda" ? "nccl" : "gloo";
}

std::optional<std::uint64_t> bytes_in(const std::string& text) {
  static const std::map<std::string, std::uint64_t> units = {
      {"", 1},          {"B", 1},         {"KB", 1'000},   {"MB", 1'000'000}, {"GB", 1'000'000'000},
      {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number == 0) return std::nullopt;
  std::string unit(end, text.data() + text.size());
  if (const auto begin = unit.find_first_not_of(' '); begin != std::string::npos) unit.erase(0, begin);
  const auto found = units.find(unit);
  if (found == units.end() || number > std::numeric_limits<std::uint64_t>::max() / found->second)
    return std::nullopt;
  return number * found->second;
}

std::string torch_version(const std::string& python) {
  const std::string line =
      quoted(python) +
      " -c 'import importlib.metadata; print(importlib.metadata.version(\"torch\"))' 2>/dev/null";
  std::string version;
  if (FILE* pipe = popen(line.c_str(), "r")) {
    std::array<char, 256> buffer;
    while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
      version.append(buffer.data(), count);
    if (pclose(pipe) != 0) version.clear();
  }
  version = version.substr(0, version.find('\n'));
  if (version.empty()) {
    throw UsageError(fmt::format(
        "{} is no Python with torch; `ci/setup` makes one, `ci/torch-environment VERSION` one of another "
        "version",
        python));
  }
  return version;
}

Testee testee_from(const TesteeChoice& choice, const Suite& suite) {
  if (choice.spec.empty()) throw UsageError("--testee needs cpp, pytorch, mutant:ID or a command");
  Testee testee;
  testee.name = choice.spec;
  testee.command = command_of(choice, suite);
  testee.forks = can_fork(choice);
  if (choice.spec.starts_with("mutant:")) testee.rank_environment["FSDP_CTS_MUTANT"] = choice.spec.substr(7);
  for (const auto& [option, value] :
       {std::pair("--backend", choice.backend), std::pair("--device", choice.device)}) {
    if (value.empty()) continue;
    testee.command.push_back(option);
    testee.command.push_back(value);
  }
  if (!choice.sim_machine.empty()) testee.environment["FSDP_SIM_MACHINE"] = choice.sim_machine;
  if (!choice.sim_trace.empty())
    testee.environment["FSDP_SIM_TRACE"] = fs::absolute(choice.sim_trace).string();
  if (const auto limit = bytes_in(choice.sim_memory))
    testee.environment["FSDP_SIM_MEMORY"] = std::to_string(*limit);
  for (const std::string& entry : choice.environment) {
    const std::size_t sign = entry.find('=');
    testee.environment[entry.substr(0, sign)] = entry.substr(sign + 1);
  }
  return testee;
}

Testee oracle_of(const Suite& suite, const std::string& device) {
  Testee oracle;
  oracle.name = "reference";
  oracle.command = {program(suite, "fsdp_reference", "the reference")};
  if (device == "sim") oracle.command.push_back("--count-memory");
  oracle.oracle = true;
  oracle.forks = true;
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

}  // namespace fsdp_cts
